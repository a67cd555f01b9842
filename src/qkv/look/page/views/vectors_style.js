// How the vectors view looks, beside what look.css gives to all.

export const css = `
[data-view=vectors] .both { display: grid; grid-template-columns: minmax(300px, 24rem) minmax(0, 1fr); gap: 44px; align-items: start; }
[data-view=vectors] .word { font: 400 26px/1.5 var(--serif); width: 100%; padding: 2px; }
[data-view=vectors] h3 { margin: 0 0 8px; }
[data-view=vectors] .head { justify-content: space-between; margin-bottom: 10px; }
[data-view=vectors] .head h3 { margin: 0; }
[data-view=vectors] .part { margin-bottom: 30px; }
[data-view=vectors] .bars { list-style: none; margin: 12px 0 0; padding: 0; }
[data-view=vectors] .by { margin: 14px 0 -6px; }
[data-view=vectors] .bars li {
  display: grid; grid-template-columns: minmax(5.5em, 34%) 1fr 40px; gap: 12px; align-items: center; font-size: 14.5px; padding: 1px 0;
}
[data-view=vectors] .bars button { font: 16px/1.4 var(--serif); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
[data-view=vectors] .bars button:hover { color: var(--accent); }
[data-view=vectors] .bars .num { color: var(--soft); font-size: 13px; }
[data-view=vectors] .equation { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 6px; font: 17px/1.5 var(--serif); }
[data-view=vectors] .equation input { width: 4.1em; font: inherit; padding: 1px 2px; text-align: center; }
[data-view=vectors] .equation span { color: var(--faint); font-size: 14px; font-family: var(--sans); }
[data-view=vectors] .parallel { display: block; width: 100%; margin: 10px 0 2px; overflow: visible; }
[data-view=vectors] .parallel text {
  font: 15px var(--serif); fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round;
}
[data-view=vectors] .parallel .goal { fill: var(--faint); font: italic 12.5px var(--serif); }
[data-view=vectors] .parallel .other { fill: var(--soft); font-size: 13px; }
[data-view=vectors] .map-box {
  position: relative; height: calc(100vh - 230px); min-height: 460px; background: var(--panel); border-radius: 16px; overflow: hidden;
  touch-action: none; cursor: grab;
}
[data-view=vectors] .map-box.over { cursor: pointer; }
[data-view=vectors] .map-box.held { cursor: grabbing; }
[data-view=vectors] .zoom { position: absolute; right: 10px; top: 10px; display: flex; flex-direction: column; gap: 2px; }
[data-view=vectors] .zoom .tool {
  width: 32px; justify-content: center; background: var(--raised); box-shadow: 0 1px 3px rgb(0 0 0 / .08); font-size: 17px; padding: 0;
}
[data-view=vectors] .near-words { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; margin-top: -8px; }
[data-view=vectors] .refusal { margin-top: 10px; }
@media (max-width: 900px) { [data-view=vectors] .both { grid-template-columns: minmax(0, 1fr); } }
`;
