// How the fill view looks, beyond look.css. A blank and its card share one colour, --mine.

export const css = `
[data-view=fill] {
  .fill-head { justify-content: space-between; align-items: baseline; margin-bottom: 10px; }
  .fill-lead { max-width: 68ch; color: var(--soft); }

  .sentence {
    font: 400 clamp(21px, 2.1vw, 29px)/1.9 var(--serif); white-space: pre-wrap; overflow-wrap: anywhere;
    padding: 6px 0 20px; max-width: 62em;
  }
  .fill-pair { margin: -8px 0 18px; }
  .fill-pair:empty { display: none; }
  .word { border-radius: 7px; padding: 2px 1px; margin: 0 -1px; transition: background .12s; white-space: pre-wrap; }
  .word:hover { background: var(--tint); }
  .word.linked:not(.hidden) { box-shadow: inset 0 -2px 0 color-mix(in srgb, var(--accent) 45%, transparent); border-radius: 4px; }
  .word.sign { color: var(--soft); }
  .word.hidden {
    color: var(--mine); background: color-mix(in srgb, var(--mine) 11%, transparent);
    box-shadow: inset 0 -2px 0 var(--mine); padding: 2px 8px; margin: 0 2px; border-radius: 7px 7px 3px 3px;
    min-width: 2.2em; text-align: center;
  }
  .word.hidden em { font-style: normal; }
  .word.hidden em.waiting { opacity: .5; }

  .group + .group { margin-top: 26px; }
  .group > h3 { margin-bottom: 10px; }
  .cards { display: flex; flex-wrap: wrap; gap: 22px 44px; }
  .card { flex: 0 1 330px; min-width: min(250px, 100%); }
  .card header {
    display: flex; align-items: baseline; gap: 10px; padding-bottom: 8px; margin-bottom: 4px;
    box-shadow: 0 2px 0 var(--mine);
  }
  .card header b { color: var(--mine); font-weight: 620; white-space: nowrap; }
  .card header span { color: var(--soft); font-size: 13.5px; }

  .guess {
    display: grid; grid-template-columns: minmax(7.4em, auto) 1fr 4.4em; align-items: center; gap: 12px;
    width: calc(100% + 16px); margin: 0 -8px; padding: 5px 8px; border-radius: 8px;
  }
  .guess:hover { background: color-mix(in srgb, var(--mine) 8%, transparent); }
  .guess .what { font: 400 18px/1.35 var(--serif); overflow-wrap: anywhere; }
  .guess .chance { font-size: 13.5px; color: var(--soft); text-align: right; white-space: nowrap; }
  .guess .bar-line { --bar: var(--mine); }
  .guess.true .what { font-weight: 700; }
  .guess.true .chance { color: var(--ink); font-weight: 600; }
  .guess.far { margin-top: 8px; position: relative; }
  .guess.far::before { content: "⋮"; position: absolute; left: 10px; top: -11px; color: var(--faint); font-size: 12px; }

  .next { margin-top: 34px; max-width: 640px; }
  .next + .next { margin-top: 18px; }
  .next h3 { margin-bottom: 10px; }
  .next .two { display: flex; height: 14px; gap: 2px; }
  .next .two i { display: block; min-width: 2px; transition: flex-grow .3s; }
  .next .two i:first-child { background: var(--accent); border-radius: 7px 3px 3px 7px; }
  .next .two i:last-child { background: color-mix(in srgb, var(--ink) 12%, transparent); border-radius: 3px 7px 7px 3px; }
  .next .both { display: flex; justify-content: space-between; padding-top: 6px; font-size: 14px; }
}
@media (max-width: 640px) { [data-view=fill] .card { flex: 1 1 100%; } }
`;
