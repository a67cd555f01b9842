// How the meanings view looks, beside what look.css gives to all.

export const css = `
[data-view=meanings] .top { display: flex; flex-wrap: wrap; align-items: end; gap: 14px 36px; margin-bottom: 26px; }
[data-view=meanings] .word { font: 400 26px/1.5 var(--serif); width: 8em; padding: 2px; }
[data-view=meanings] .depth { flex: 1 1 320px; display: flex; align-items: center; gap: 12px; max-width: 560px; margin-left: auto; }
[data-view=meanings] .depth input { flex: 1; }
[data-view=meanings] .both { display: grid; grid-template-columns: minmax(250px, 19.5rem) minmax(0, 1fr); gap: 34px; align-items: start; }
[data-view=meanings] .lines {
  list-style: none; margin: 0; padding: 0; font: 16px/1.5 var(--serif); max-height: max(320px, calc(100vh - 250px)); overflow-y: auto;
  scrollbar-width: thin;
}
[data-view=meanings] .lines li {
  position: relative; display: grid; grid-template-columns: 26px 1fr; gap: 8px; padding: 6px 8px 6px 0; border-radius: 8px;
  cursor: default; transition: opacity .15s, background .15s;
}
[data-view=meanings] .lines li.hot { background: var(--panel); }
[data-view=meanings] .lines li.without { opacity: .5; }
[data-view=meanings] .go {
  position: absolute; right: 4px; bottom: 4px; opacity: 0; background: var(--raised); font: 12.5px/1.6 var(--sans); padding: 0 8px;
  box-shadow: 0 1px 3px rgb(0 0 0 / .1);
}
[data-view=meanings] .lines li:hover .go, [data-view=meanings] .go:focus-visible { opacity: 1; }
[data-view=meanings] .lines b {
  font-weight: 650; border-radius: 4px; padding: 0 2px; margin: 0 -2px; background: color-mix(in srgb, var(--own) 14%, transparent);
  color: var(--own);
}
[data-view=meanings] .mark {
  display: inline-grid; place-items: center; width: 20px; height: 20px; border-radius: 50%; font: 650 10.5px/1 var(--sans);
  color: var(--paper); margin-top: 3px;
}
[data-view=meanings] .planes {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 28px 22px; align-items: start;
}
[data-view=meanings] .one { max-width: 440px; min-width: 0; }
[data-view=meanings] .one header {
  display: flex; align-items: baseline; justify-content: space-between; gap: 10px; margin-bottom: 8px; white-space: nowrap;
}
[data-view=meanings] .who { color: var(--ink); overflow: hidden; text-overflow: ellipsis; }
[data-view=meanings] .where { font-size: 12.5px; }
[data-view=meanings] .one .refusal { flex-wrap: nowrap; margin: 0; }
[data-view=meanings] .one .refusal p { flex: 1 1 auto; }
[data-view=meanings] .plane { display: block; width: 100%; background: var(--panel); border-radius: 14px; touch-action: manipulation; }
[data-view=meanings] .plane .axes { stroke: var(--rule); fill: none; }
[data-view=meanings] .plane line { stroke-width: 1.4; }
[data-view=meanings] .dot { cursor: pointer; transition: opacity .15s; }
[data-view=meanings] .dot circle { stroke: var(--panel); stroke-width: 1.6; transition: stroke .15s; }
[data-view=meanings] .dot text { font: 650 10.5px var(--sans); fill: var(--paper); pointer-events: none; }
[data-view=meanings] .dot.lit circle { stroke: var(--ink); }
[data-view=meanings] .dot.hot circle { stroke: var(--ink); stroke-width: 2; }
[data-view=meanings] .dot.far { opacity: .38; }
[data-view=meanings] .many { font: 12px var(--sans); fill: var(--soft); }
[data-view=meanings] .strip { display: flex; gap: 2px; margin: 6px 0 8px; }
[data-view=meanings] .stamp { flex: 1 1 0; min-width: 0; max-width: 34px; border-radius: 5px; opacity: .55; }
[data-view=meanings] .stamp svg { display: block; width: 100%; }
[data-view=meanings] .stamp:hover { opacity: 1; background: var(--panel); }
[data-view=meanings] .stamp[data-on] { opacity: 1; background: var(--tint); }
[data-view=meanings] .said-of { font-size: 12.5px; line-height: 1.45; margin-bottom: 8px; }
[data-view=meanings] .said-of:empty { margin: 0; }
[data-view=meanings] .near { list-style: none; margin: 0; padding: 0; font-size: 13px; }
[data-view=meanings] .near li {
  display: grid; grid-template-columns: 20px 32px 42px minmax(0, 1fr); gap: 7px; align-items: center; padding: 3px 0; cursor: pointer;
  color: var(--soft);
}
[data-view=meanings] .near li:hover { color: var(--ink); }
[data-view=meanings] .near .mark { width: 18px; height: 18px; margin: 0; font-size: 10px; }
[data-view=meanings] .context {
  overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-family: var(--serif); font-size: 14px;
}
[data-view=meanings] .course { margin-top: 26px; }
[data-view=meanings] .course h3 { margin-bottom: 6px; }
[data-view=meanings] .course svg { display: block; max-width: 100%; cursor: ew-resize; }
[data-view=meanings] .grid { stroke: var(--rule); fill: none; }
[data-view=meanings] .now { stroke: var(--faint); stroke-dasharray: 1 3; fill: none; }
[data-view=meanings] .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
[data-view=meanings] .tick { font: 11.5px var(--sans); fill: var(--faint); }
[data-view=meanings] .name { font: 13px var(--sans); }
[data-view=meanings] textarea { font: 16px/1.6 var(--serif); min-height: 320px; }
@media (min-width: 640px) and (max-width: 1450px) { /* four models: two and two, not three and one */
  [data-view=meanings] .planes:has(> .one:nth-child(4):last-child) { grid-template-columns: repeat(2, minmax(0, 1fr)); }
}
@media (max-width: 900px) {
  [data-view=meanings] .both { grid-template-columns: minmax(0, 1fr); }
  [data-view=meanings] .lines { max-height: 240px; min-height: 0; }
}
`;
