// The recurrence view's own rules, adopted by the shell. Colours and shared parts are look.css's.

export const css = `
[data-view=recurrence] { min-height: 60px; }
[data-view=recurrence] .rc-top { gap: 10px 26px; margin: 10px 0 14px; }
[data-view=recurrence] .rc-grid { display: grid; grid-template-columns: minmax(0, 1fr) 356px; gap: 10px 40px; align-items: start; }
[data-view=recurrence] .rc-figure { outline: none; border-radius: 6px; } [data-view=recurrence] .rc-figure:focus-visible { box-shadow: 0 0 0 2px var(--accent); }
[data-view=recurrence] .rc-figure canvas { cursor: crosshair; touch-action: pan-x pan-y; }
[data-view=recurrence] .rc-readout { min-height: 20px; font-size: 13px; color: var(--soft); margin-top: 4px; }
[data-view=recurrence] .rc-controls { gap: 4px; flex-wrap: nowrap; margin-bottom: 4px; }
[data-view=recurrence] .rc-key { width: 32px; height: 32px; border-radius: 50%; display: grid; place-items: center; color: var(--soft); flex: none; }
[data-view=recurrence] .rc-key:hover { background: var(--panel); color: var(--ink); } [data-view=recurrence] .rc-key[data-press=play] { background: var(--accent); color: var(--on-accent); }
[data-view=recurrence] .tr-sign { width: 17px; height: 17px; fill: currentColor; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
[data-view=recurrence] .rc-keys { gap: 4px; flex-wrap: nowrap; }
[data-view=recurrence] .rc-slider { flex: 1; min-width: 60px; margin: 0 8px; }
[data-view=recurrence] .rc-now { font: 400 24px/1.35 var(--serif); margin: 4px 0 14px; min-height: 32px; } [data-view=recurrence] .rc-now b { font-weight: 400; color: var(--hot); }
[data-view=recurrence] .rc-unit { justify-content: space-between; flex-wrap: nowrap; margin-bottom: 4px; } [data-view=recurrence] .rc-unit .field { width: 5.2em; text-align: right; }
[data-view=recurrence] .rc-equation { display: flex; flex-direction: column; }
[data-view=recurrence] .rc-line { display: grid; grid-template-columns: 26px 1fr auto; gap: 0 10px; align-items: center; padding: 5px 0 6px; position: relative; }
[data-view=recurrence] .rc-line.state { padding-top: 8px; } [data-view=recurrence] .rc-line b { font-weight: 600; font-size: 15.5px; } [data-view=recurrence] .rc-line.state b { font-size: 17px; }
[data-view=recurrence] .rc-letter { font: italic 400 20px/1 var(--serif); }
[data-view=recurrence] .rc-how { display: flex; flex-direction: column; line-height: 1.35; min-width: 0; } [data-view=recurrence] .rc-symbols { font-size: 12.5px; color: var(--faint); } [data-view=recurrence] .rc-numbers { font-size: 14px; white-space: nowrap; }
[data-view=recurrence] .rc-meter { grid-column: 2 / -1; height: 3px; border-radius: 2px; margin-top: 4px; position: relative; background: color-mix(in srgb, var(--ink) 7%, transparent); } [data-view=recurrence] .rc-meter i { position: absolute; top: 0; bottom: 0; border-radius: 2px; transition: left .2s, width .2s; }
[data-view=recurrence] .rc-meter.both::after { content: ""; position: absolute; left: 50%; top: -2px; bottom: -2px; width: 1px; background: var(--faint); }
[data-view=recurrence] .rc-next { margin-top: 18px; } [data-view=recurrence] .rc-list { display: flex; flex-direction: column; gap: 2px; margin-top: 6px; }
[data-view=recurrence] .rc-word { display: grid; grid-template-columns: 104px 1fr 62px; gap: 12px; align-items: center; } [data-view=recurrence] .rc-token { text-align: right; white-space: pre; overflow: hidden; text-overflow: ellipsis; }
[data-view=recurrence] .rc-word.came .rc-token { color: var(--hot); font-weight: 600; } [data-view=recurrence] .rc-word.came .bar-line { --bar: var(--hot); }
@media (max-width: 1080px) { [data-view=recurrence] .rc-grid { grid-template-columns: minmax(0, 1fr); } }
`;
