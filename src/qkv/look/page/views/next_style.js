// How the view of next words looks, beyond look.css. The ground of a word is its surprise: --heat, from 0 to 1.

export const css = `
[data-view=next] {
  min-height: 1px;
  .nx-head { justify-content: space-between; align-items: baseline; margin-bottom: 10px; }
  .nx-lead { max-width: 64ch; color: var(--soft); }

  .nx-sentence {
    font: 400 clamp(21px, 2.1vw, 29px)/1.75 var(--serif); white-space: pre-wrap; overflow-wrap: anywhere;
    padding: 6px 0 4px; max-width: 62em;
  }
  .nx-word {
    padding: 2px 1px; border-radius: 5px; white-space: pre-wrap; line-height: 1.35;
    background: color-mix(in srgb, var(--warm) calc(52% * var(--heat, 0)), transparent);
  }
  .nx-word:hover { box-shadow: inset 0 -2px 0 color-mix(in srgb, var(--accent) 55%, transparent); }
  .nx-word.linked { box-shadow: inset 0 -2px 0 color-mix(in srgb, var(--accent) 45%, transparent); }
  .nx-word.chosen { box-shadow: inset 0 -3px 0 var(--accent); color: var(--accent); }
  .nx-word.piece { color: var(--faint); padding: 3px 0; }
  .nx-word.blind { color: var(--faint); }
  .nx-word.open {
    color: var(--faint); font: 400 15px/1.2 var(--sans); padding: 7px 12px; margin: 0 8px; border-radius: 8px; background: var(--panel);
    white-space: nowrap; vertical-align: .12em;
  }
  .nx-word.open.chosen { color: var(--accent); background: var(--tint); }

  .nx-under { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 22px; color: var(--soft); font-size: 13.5px; margin-bottom: 4px; }
  .nx-scale { display: inline-flex; align-items: center; gap: 8px; white-space: nowrap; }
  .nx-scale > i { display: inline-flex; border-radius: 4px; overflow: hidden; }
  .nx-scale b { width: 18px; height: 10px; background: color-mix(in srgb, var(--warm) calc(52% * var(--heat)), transparent); }
  .nx-readout { min-height: 1.6em; color: var(--soft); font-size: 13.5px; }

  .nx-cards { display: flex; flex-wrap: wrap; gap: 30px 40px; margin-top: 16px; }
  .nx-card { flex: 1 1 290px; max-width: 390px; min-width: min(290px, 100%); }
  .nx-card header { display: flex; align-items: baseline; justify-content: space-between; gap: 4px 12px; flex-wrap: wrap; padding-bottom: 8px; box-shadow: 0 2px 0 var(--mine); }
  .nx-card header b { color: var(--mine); font-weight: 620; overflow-wrap: anywhere; }
  .nx-card header span { color: var(--soft); font-size: 13.5px; white-space: nowrap; }
  .nx-seen { font: 400 15.5px/1.6 var(--serif); padding: 10px 0 6px; overflow-wrap: anywhere; white-space: pre-wrap; min-height: 3.6em; }
  .nx-seen .unseen { color: var(--faint); opacity: .38; }
  .nx-seen .gap { color: var(--mine); font-style: normal; padding: 0 .5em; margin: 0 .15em; border-radius: 4px; background: color-mix(in srgb, var(--mine) 16%, transparent); }

  .nx-guess {
    display: grid; grid-template-columns: minmax(7em, auto) 1fr 4.4em; align-items: center; gap: 12px;
    width: calc(100% + 16px); margin: 0 -8px; padding: 5px 8px; border-radius: 8px; --bar: var(--mine);
  }
  button.nx-guess:hover { background: color-mix(in srgb, var(--mine) 8%, transparent); }
  .nx-guess .what { font: 400 18px/1.35 var(--serif); overflow-wrap: anywhere; white-space: pre-wrap; }
  .nx-guess .what.mark { font: italic 400 15px/1.6 var(--sans); color: var(--faint); }
  .nx-guess .num { font-size: 13.5px; color: var(--soft); white-space: nowrap; }
  .nx-guess.true .what { font-weight: 700; }
  .nx-guess.true .num { color: var(--ink); font-weight: 600; }
  .nx-guess.far { margin-top: 8px; position: relative; }
  .nx-guess.far::before { content: "⋮"; position: absolute; left: 10px; top: -11px; color: var(--faint); font-size: 12px; }
  .nx-card .caption { margin-top: 8px; }
  .nx-card h4 { margin: 10px 0 2px; font-size: 12.5px; font-weight: 500; color: var(--faint); }
  .nx-card .quiet { margin: 6px 0 0 -8px; }
  .nx-walk { margin: 14px 0 0; }
  .nx-walk:empty { display: none; }
}
@media (max-width: 640px) { [data-view=next] .nx-card { flex: 1 1 100%; max-width: none; } [data-view=next] .nx-seen { min-height: 0; } }
`;
