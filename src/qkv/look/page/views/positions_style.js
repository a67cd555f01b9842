// How the positions view looks, beside what look.css gives to all.

export const css = `
[data-view=positions] h2 { margin: 0 0 14px; }
[data-view=positions] .maps { display: flex; flex-wrap: wrap; gap: 22px 30px; }
[data-view=positions] figcaption {
  font-size: 13.5px; font-weight: 600; color: var(--soft); margin-bottom: 7px; white-space: nowrap; overflow: hidden;
  text-overflow: ellipsis;
}
[data-view=positions] .map { overflow: visible; }
[data-view=positions] .box { position: relative; cursor: crosshair; background: var(--panel); touch-action: none; }
[data-view=positions] .box canvas { display: block; }
[data-view=positions] .over { position: absolute; inset: 0; width: 100%; height: 100%; pointer-events: none; overflow: hidden; }
[data-view=positions] .cross { stroke: var(--ink); stroke-opacity: .55; fill: none; stroke-width: 1; }
[data-view=positions] .axis { font-size: 12px; margin-top: 6px; white-space: nowrap; }
[data-view=positions] .none { flex: 1 1 240px; max-width: 44ch; align-self: center; font-size: 15px; }
[data-view=positions] .formula { font: 17px/1.5 var(--serif); margin: 14px 0 10px; min-height: 30px; white-space: pre-wrap; }
[data-view=positions] .formula sup { font-size: .68em; line-height: 0; }
[data-view=positions] .formula b { color: var(--accent); font-weight: 620; }
[data-view=positions] .formula .faint { font: 13.5px var(--sans); }
[data-view=positions] .charts { display: grid; grid-template-columns: 1fr 1fr; gap: 30px; }
[data-view=positions] .curve { fill: none; stroke: var(--accent); stroke-width: 1.6; stroke-linejoin: round; }
[data-view=positions] .zero { stroke: var(--rule); fill: none; }
[data-view=positions] .spot { fill: var(--hot); }
[data-view=positions] .tick { font: 11.5px var(--sans); fill: var(--faint); font-variant-numeric: tabular-nums; }
[data-view=positions] .order { margin-top: 38px; }
[data-view=positions] .writing-two { display: flex; flex-wrap: wrap; align-items: end; gap: 10px 22px; margin-bottom: 20px; }
[data-view=positions] .writing-two label { flex: 1 1 260px; }
[data-view=positions] .writing-two input { width: 100%; font: 19px/1.5 var(--serif); }
[data-view=positions] .order-both { display: grid; grid-template-columns: minmax(0, 5fr) minmax(0, 6fr); gap: 44px; align-items: start; }
[data-view=positions] .joined { margin-bottom: 18px; }
[data-view=positions] .joined svg, [data-view=positions] .chart svg { display: block; max-width: 100%; }
[data-view=positions] .tie { fill: none; stroke-opacity: .55; transition: opacity .15s; }
[data-view=positions] .said { font-family: var(--serif); cursor: default; transition: opacity .15s; }
[data-view=positions] .off { opacity: .16; }
[data-view=positions] .course { fill: none; stroke-width: 1.8; stroke-linejoin: round; transition: opacity .15s; }
[data-view=positions] .course.without { stroke-dasharray: 2 4; stroke-width: 1.4; }
[data-view=positions] .here { stroke: var(--faint); stroke-dasharray: 1 3; fill: none; }
[data-view=positions] text.name { font: 14px var(--serif); cursor: default; }
[data-view=positions] .verdict {
  display: grid; grid-template-columns: 12em 42px 60px 1fr; gap: 10px; align-items: center; padding: 4px 0; font-size: 13.5px;
}
[data-view=positions] .verdict .name { color: var(--soft); }
@media (max-width: 1180px) { [data-view=positions] .order-both { grid-template-columns: minmax(0, 1fr); } }
@media (max-width: 830px) { [data-view=positions] .charts { grid-template-columns: minmax(0, 1fr); } }
`;
