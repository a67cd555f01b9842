// The attention view's own rules; colours and type are the page's.

export const css = `
[data-view=attention] { --head: var(--accent); }
.at-controls { gap: 8px 22px; margin-bottom: 20px; }
.at-choice { display: inline-flex; align-items: center; gap: 9px; }
.at-choice .segmented button { padding: 2px 10px; font-size: 13px; }
.at-panes { display: grid; gap: 36px; grid-template-columns: minmax(0, 1fr); }
.at-panes.two { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); }
.at-pane { min-width: 0; }
.at-heading { display: flex; flex-wrap: wrap; align-items: baseline; gap: 2px 14px; }
.at-title { color: var(--head); font-size: 21px; white-space: nowrap; }
.at-about { font-size: 13.5px; } .at-pinned { padding-left: 12px; font-size: 13px; }
.at-says { height: 1.65em; margin-top: 3px; overflow: hidden; white-space: nowrap; text-overflow: ellipsis; contain: strict; }
.at-caveat, .at-lost { font-size: 12.5px; } .at-lost { margin-top: 2px; color: var(--soft); } .at-lost:empty, .at-rest:empty { display: none; }
.at-says b { color: var(--head); font-weight: 600; }
.at-figure { display: flex; gap: 0 32px; align-items: flex-start; margin-top: 14px; }
[data-mode=stacked] { flex-direction: column; gap: 26px; } [data-mode=stacked] .at-lines { order: -1; }
[data-mode=long], [data-mode=over] { display: grid; gap: 26px 32px; }
[data-mode=long] { grid-template: "maps large" auto "lines large" 1fr / max-content 1fr; }
[data-mode=over] { grid-template: "lines maps" auto "lines large" 1fr / max-content 1fr; }
.at-maps { grid-area: maps; } .at-lines { grid-area: lines; } .at-large { grid-area: large; }
.at-maps { flex: none; } .at-maps canvas { display: block; }
.at-lines, .at-large { position: relative; flex: none; }
.at-lines canvas, .at-large canvas { display: block; outline-offset: 4px; }
.at-lines canvas { cursor: default; touch-action: pan-y; }
.at-large canvas + canvas { position: absolute; left: 0; top: 0; cursor: crosshair; touch-action: none; }
.at-large { contain: layout; }
.at-zooms { position: absolute; right: 0; top: -22px; display: none; gap: 2px; z-index: 1; }
.dense > .at-zooms { display: flex; }
.at-zoom { width: 26px; height: 26px; border-radius: 7px; text-align: center; color: var(--soft); line-height: 26px; font-size: 15px; }
.at-zoom:hover { background: var(--panel); color: var(--ink); }
.at-hint { margin-top: 7px; font-size: 12px; line-height: 1.4; white-space: pre-wrap; max-width: 400px; } .at-hint + .at-hint { margin-top: 3px; }
.at-note { margin-top: 10px; color: var(--hot); min-height: 0; } .at-note:empty { display: none; }
.at-order { margin-bottom: 8px; max-width: 420px; } .at-controls + .at-order { margin: -8px 0 20px; }
.at-order-line { gap: 2px 8px; flex-wrap: nowrap; } .at-order select { font-size: 13.5px; min-width: 0; } .at-order .at-zoom { flex: none; }
.at-range { position: relative; max-width: 320px; color: var(--ink); padding-bottom: 2px; }
.at-dots { display: block; width: 100%; height: 26px; overflow: visible; }
.at-handles { position: relative; height: 16px; margin-top: -10px; }
.at-handles input { position: absolute; inset: 0; width: 100%; margin: 0; appearance: none; background: none; pointer-events: none; height: 16px; }
.at-handles input::-webkit-slider-thumb { appearance: none; pointer-events: auto; width: 11px; height: 15px; border-radius: 4px; background: var(--raised); border: 1.5px solid var(--soft); cursor: ew-resize; }
.at-handles input::-moz-range-thumb { pointer-events: auto; width: 8px; height: 12px; border-radius: 4px; background: var(--raised); border: 1.5px solid var(--soft); cursor: ew-resize; }
.at-range-say { display: flex; justify-content: space-between; font-size: 12px; }
.at-below { margin-top: 34px; }
.at-tabs { display: flex; gap: 6px; margin-bottom: 16px; } .at-tabs [aria-selected=true] { background: var(--tint); color: var(--accent); }
.at-scroll { overflow-x: auto; } .at-scroll.cut { box-shadow: inset -14px 0 12px -12px color-mix(in srgb, var(--ink) 24%, transparent); } .at-rest { margin: -6px 0 8px; color: var(--hot); }
.at-steps .row { margin-bottom: 14px; gap: 4px 14px; } .at-steps h3 { color: var(--ink); font-size: 15px; }
.at-steps canvas { display: block; }
.at-reading { text-align: left; font-size: 13px; color: var(--soft); min-height: 1.7em; margin: 4px 0 8px; white-space: pre-wrap; }
.at-sums { display: grid; grid-template-columns: max-content 1fr; gap: 5px 18px; font-size: 13.5px; max-width: 980px; padding: 14px 18px; border-radius: 12px; background: var(--panel); }
.at-step-name { grid-column: 1 / -1; font-weight: 600; color: var(--head); }
.at-sum { text-align: left; white-space: pre-wrap; } .at-sum b { font-weight: 620; } .at-sum sup { font-size: .72em; line-height: 0; }
.at-foot { margin-top: 34px; max-width: 124ch; font-size: 12.5px; }
.at-table { overflow: auto; max-height: 80vh; } .at-table th, .at-table td { padding: 2px 8px; } .at-table caption { text-align: left; padding-bottom: 8px; }
@media (max-width: 640px) { .at-says { height: auto; min-height: 3.3em; white-space: normal; contain: layout; } .at-heading .at-title { white-space: normal; } .at-sums { grid-template-columns: minmax(0, 1fr); overflow-wrap: anywhere; } }
@media (max-width: 1080px) { .at-panes.two { grid-template-columns: minmax(0, 1fr); } }
`;
