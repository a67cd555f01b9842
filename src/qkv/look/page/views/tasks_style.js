// How the view of tasks looks.

export const css = `
[data-view=tasks] .tasks-lead { max-width: 88ch; color: var(--soft); margin-bottom: 14px; }
[data-view=tasks] .tasks-asking { display: flex; flex-direction: column; gap: 12px; max-width: 62em; }
[data-view=tasks] .tasks-asking:not(:empty) { margin-bottom: 24px; }
[data-view=tasks] .tasks-field { display: flex; flex-direction: column; gap: 2px; }
[data-view=tasks] .tasks-field .field { font: 400 18px/1.6 var(--serif); }
[data-view=tasks] .tasks-question.field { font-size: 21px; }
[data-view=tasks] .tasks-examples { gap: 8px; }
[data-view=tasks] .tasks-examples .chip { white-space: normal; text-align: left; }
[data-view=tasks] .tasks-examples > .quiet { margin-left: auto; }
[data-view=tasks] .tasks-one + .tasks-one { margin-top: 40px; }
[data-view=tasks] .tasks-one > h3 { margin-bottom: 12px; }
[data-view=tasks] .tasks-verdict { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 18px; margin: 4px 0 22px; }
[data-view=tasks] .tasks-said { font: 500 clamp(24px, 2.6vw, 34px)/1.25 var(--serif); overflow-wrap: anywhere; }
[data-view=tasks] .tasks-chance { font-size: 18px; color: var(--accent); }
[data-view=tasks] .tasks-note { color: var(--soft); }
[data-view=tasks] .unsure .tasks-said, [data-view=tasks] .unsure .tasks-chance { color: var(--faint); }
[data-view=tasks] .tasks-list, [data-view=tasks] .tasks-line.head { max-width: 760px; }
[data-view=tasks] .tasks-line {
  display: grid; grid-template-columns: minmax(130px, 240px) 64px 1fr 72px; gap: 16px; align-items: center;
  padding: 5px 0; color: var(--soft); --bar: color-mix(in srgb, var(--accent) 45%, transparent);
}
[data-view=tasks] .tasks-line.span { grid-template-columns: minmax(150px, 380px) 1fr 72px; }
[data-view=tasks] .tasks-line.head { color: var(--faint); font-size: 12.5px; padding-bottom: 4px; }
[data-view=tasks] .tasks-line.head > span { font-size: 12.5px; }
[data-view=tasks] .tasks-line .what { font: 400 17px/1.35 var(--serif); overflow-wrap: anywhere; white-space: pre-wrap; }
[data-view=tasks] .tasks-line.head .what { font: inherit; }
[data-view=tasks] .tasks-line.said { color: var(--ink); --bar: var(--accent); }
[data-view=tasks] .tasks-line.said .what, [data-view=tasks] .tasks-line.said .chance { font-weight: 620; }
[data-view=tasks] .tasks-line.silent .what { font-style: italic; }
[data-view=tasks] .tasks-line .score { font-size: 13.5px; }
[data-view=tasks] .tasks-line .chance { font-size: 14px; }
[data-view=tasks] .tasks-bar { position: relative; }
[data-view=tasks] .tasks-from { position: absolute; top: -5px; bottom: -5px; width: 2px; margin-left: -1px; background: var(--hot); }
[data-view=tasks] .tasks-text {
  font: 400 clamp(20px, 2vw, 26px)/2.5 var(--serif); white-space: pre-wrap; overflow-wrap: anywhere; max-width: 62em;
  margin-bottom: 6px;
}
[data-view=tasks] .tasks-entity {
  position: relative; border-radius: 6px 6px 2px 2px; padding: 3px 3px 4px; margin: 0 1px;
  background: color-mix(in srgb, var(--mine) 13%, transparent); box-shadow: inset 0 -2px 0 var(--mine);
}
[data-view=tasks] .tasks-entity.unsure { box-shadow: none; border-bottom: 2px dashed var(--mine); }
[data-view=tasks] .tasks-entity .kind {
  position: absolute; left: 3px; top: 100%; font: 600 11px/1.5 var(--sans); color: var(--mine); white-space: nowrap;
  letter-spacing: .03em;
}
[data-view=tasks] .tasks-line.entity.unsure { opacity: .6; }
[data-view=tasks] .tasks-line.entity .kind { color: var(--mine); font-size: 13px; font-weight: 600; }
[data-view=tasks] .tasks-key { display: inline-flex; align-items: baseline; gap: 7px; }
[data-view=tasks] .tasks-key::before {
  content: ""; flex: none; align-self: center; width: 16px; height: 5px; border-radius: 2px; background: var(--mine);
}
[data-view=tasks] .legend { margin: 8px 0 18px; }
[data-view=tasks] .tasks-figure { margin-bottom: 30px; }
[data-view=tasks] .tasks-readout {
  display: flex; flex-wrap: wrap; gap: 2px 24px; min-height: 22px; margin-bottom: 10px; font-size: 13.5px;
  color: var(--soft); white-space: pre-wrap;
}
[data-view=tasks] .tasks-passage {
  font: 400 19px/2.35 var(--serif); white-space: pre-wrap; overflow-wrap: anywhere; max-width: 58em;
  outline-offset: 8px;
}
[data-view=tasks] .tasks-token { position: relative; border-radius: 3px; }
[data-view=tasks] .tasks-token.on { background: color-mix(in srgb, var(--ink) 8%, transparent); }
[data-view=tasks] .tasks-token i { position: absolute; left: 0; right: 0; height: 5px; top: calc(100% + 2px); pointer-events: none; }
[data-view=tasks] .tasks-token i.end { top: calc(100% + 8px); }
[data-view=tasks] .inside {
  background: var(--tint); color: var(--accent); font-weight: 620; border-radius: 0;
  box-shadow: 0 -2px 0 3px var(--tint), 0 0 0 3px var(--tint);
}
[data-view=tasks] .tasks-token.inside.on { background: color-mix(in srgb, var(--accent) 22%, var(--tint)); }
[data-view=tasks] .tasks-heading { margin-bottom: 8px; }
@media (max-width: 640px) {
  [data-view=tasks] .tasks-line, [data-view=tasks] .tasks-line.span { grid-template-columns: minmax(6em, 1fr) 4.6em; }
  [data-view=tasks] .tasks-line .score { display: none; }
  [data-view=tasks] .tasks-line .tasks-bar { grid-column: 1 / -1; grid-row: 2; }
}
`;
