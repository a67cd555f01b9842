// The translation view's own rules, adopted by the shell. Colours and shared parts are look.css's.

export const css = `
[data-view=translation] { min-height: 60px; }
[data-view=translation] .tr-top { display: grid; grid-template-columns: var(--tr-columns, minmax(0, 1fr)); gap: 28px 8px; align-items: start; }
[data-view=translation] .tr-alignment { display: flex; flex-wrap: wrap; gap: 16px 44px; align-items: flex-start; margin-top: -12px; }
[data-view=translation] .tr-alignment .figure { max-width: 100%; max-height: 640px; overflow: auto; }
[data-view=translation] .tr-alignment text { cursor: default; } [data-view=translation] .tr-word:focus-visible { outline: none; text-decoration: underline; text-underline-offset: 3px; }
[data-view=translation] .tr-alignment svg text, [data-view=translation] .tr-alignment path, [data-view=translation] .tr-alignment g { transition: opacity .12s; }
[data-view=translation] .tr-best { display: flex; flex-direction: column; gap: 1px; margin: 8px 0 0 -12px; max-width: 640px; padding: 0; list-style: none; counter-reset: place; }
[data-view=translation] .tr-best button { width: 100%; display: grid; grid-template-columns: 1fr auto; gap: 1px 14px; padding: 7px 12px 8px; border-radius: 10px; }
[data-view=translation] .tr-best button:hover { background: var(--panel); }
[data-view=translation] .tr-best button[aria-pressed=true] { background: var(--tint); }
[data-view=translation] .tr-best .tr-said { font: 400 17px/1.4 var(--serif); overflow-wrap: anywhere; }
[data-view=translation] .tr-best button[aria-pressed=true] .tr-said { color: var(--accent); }
[data-view=translation] .tr-best .bar-line { grid-column: 1 / -1; height: 3px; }
[data-view=translation] .tr-player { margin-top: 34px; border-top: 1px solid var(--rule); padding-top: 22px; outline: none; }
[data-view=translation] .tr-head { justify-content: space-between; }
[data-view=translation] .tr-controls { gap: 4px 6px; flex: 1 1 340px; justify-content: center; flex-wrap: nowrap; }
[data-view=translation] .tr-key { width: 34px; height: 34px; border-radius: 50%; display: grid; place-items: center; color: var(--soft); }
[data-view=translation] .tr-sign { width: 18px; height: 18px; fill: currentColor; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
[data-view=translation] .tr-key:hover { background: var(--panel); color: var(--ink); }
[data-view=translation] .tr-key[data-press=play] { background: var(--accent); color: var(--on-accent); }
[data-view=translation] .tr-slider { flex: 1 1 120px; max-width: 260px; margin: 0 8px; min-width: 80px; }
[data-view=translation] .tr-count { font-size: 13.5px; white-space: nowrap; min-width: 92px; }
[data-view=translation] .tr-warmth { gap: 10px; flex-wrap: nowrap; } [data-view=translation] .tr-heat { width: 120px; } [data-view=translation] .tr-degree { min-width: 2.2em; font-weight: 560; }
[data-view=translation] .tr-written { font: 400 26px/1.5 var(--serif); margin: 16px 0 14px; min-height: 40px; overflow-wrap: anywhere; }
[data-view=translation] .tr-other:not(:empty) { margin: -6px 0 14px; font-size: 14px; }
[data-view=translation] .tr-caret { display: inline-block; width: 2px; height: 1.1em; vertical-align: -.18em; background: var(--hot); margin: 0 5px; }
[data-view=translation] .tr-coming { color: var(--hot); white-space: pre; }
[data-view=translation] .tr-columns { display: grid; grid-template-columns: minmax(440px, 1.25fr) minmax(260px, 1fr); gap: 20px 64px; margin: 26px 0 16px; }
[data-view=translation] .tr-table { width: 100%; border-collapse: collapse; font-size: 14.5px; margin-top: 6px; }
[data-view=translation] .tr-table th { font-weight: 500; font-size: 12.5px; color: var(--faint); text-align: left; padding: 2px 16px 4px 0; white-space: nowrap; } [data-view=translation] .tr-table th.num { text-align: right; }
[data-view=translation] .tr-table td { padding: 2.5px 16px 2.5px 0; } [data-view=translation] .tr-table td.num { color: var(--soft); white-space: nowrap; } [data-view=translation] .tr-table td:last-child { padding-right: 0; min-width: 66px; color: var(--ink); }
[data-view=translation] .tr-token { font-size: 16px; white-space: pre; max-width: 160px; overflow: hidden; text-overflow: ellipsis; } [data-view=translation] .tr-share { width: 40%; min-width: 90px; }
[data-view=translation] tr.next .tr-token { color: var(--hot); font-weight: 620; } [data-view=translation] tr.next .bar-line { --bar: var(--hot); }
[data-view=translation] tr.kept .tr-token { color: var(--accent); font-weight: 560; } [data-view=translation] tr.rest td { color: var(--faint); font-size: 13.5px; }
[data-view=translation] .tr-look-list { display: flex; flex-direction: column; gap: 6px; margin-top: 10px; max-height: 330px; overflow-y: auto; }
[data-view=translation] .tr-look { display: grid; grid-template-columns: minmax(70px, 150px) 1fr 64px; gap: 14px; align-items: center; }
[data-view=translation] .tr-look-list.many { gap: 1px; font-size: 13.5px; }
[data-view=translation] .tr-look-token { text-align: right; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; } [data-view=translation] .tr-look-token.most { color: var(--hot); font-weight: 600; }
[data-view=translation] .tr-tree { margin-top: 10px; padding-bottom: 4px; } [data-view=translation] .tr-node[role=button] { cursor: pointer; } [data-view=translation] .tr-node:focus-visible { outline: none; } [data-view=translation] .tr-node:focus-visible text { text-decoration: underline; }
@media (max-width: 860px) { [data-view=translation] .tr-columns { grid-template-columns: minmax(0, 1fr); } }
`;
