// Where the three drawings of a pane go, by the room there is and the length of the text. Numbers alone.
//
//   beside    maps | lines | large                    while the large map's cells stay wide enough to read
//   over      lines | maps over large                 many heads or many words
//   long      maps over lines | large                 so many tokens that the large map wants all it can get
//   stacked   one below the other                     narrow windows, and two subjects side by side

export const GAP = 32; // between the drawings, as in the style
const LONG = 64, NARROW = 880, FAN = 340, READABLE = 16, ROW = 33, LABELS = 108, BELOW = 100;

// → {mode, maps: [width, height], lines: [width, height], large: [width, height]}
export function layout(width, high, { layers, heads, most, sorted }) {
  const down = layers > 1.5 * heads ? heads : layers, across = layers > 1.5 * heads ? layers : heads; // of a grid that lies
  const axis = sorted ? 56 : 0; // what stands above the maps when they are sorted
  const rows = most * ROW + 34;
  if (width < NARROW) {
    const tall = Math.max(400, Math.min(high, rows));
    const square = Math.min(width, Math.max(360, most * 34 + LABELS));
    return { mode: "stacked", maps: [width, Math.min(420, down * 46 + 20)], lines: [width, tall], large: [width, square] };
  }
  if (most > LONG) {
    const side = Math.max(340, Math.min(420, width * 0.36)), all = Math.max(560, Math.min(high + 120, width - side + 60));
    const maps = Math.min(down * 36 + 20, all * 0.5);
    return { mode: "long", maps: [side, maps], lines: [side, Math.max(320, all - maps - 130 - axis)], large: [width - side - GAP, all] };
  }
  const tall = Math.max(400, Math.min(high, Math.max(rows, layers * 42 + BELOW)));
  const side = Math.min(heads > 8 ? 32 : 50, (tall - BELOW - axis - 20) / layers - 4); // of a small map
  const maps = Math.min(width * 0.36, Math.max(sorted ? 220 : 196, 26 + heads * (side + 4))), rest = width - maps - 2 * GAP;
  const lines = Math.min(480, Math.max(FAN, rest * 0.42)), large = rest - lines;
  if ((large - LABELS) / most >= READABLE) {
    return { mode: "beside", maps: [maps, Math.max(220, tall - BELOW - axis)], lines: [lines, tall], large: [large, tall] };
  }
  const first = Math.min(460, width * 0.4), second = width - first - GAP, over = Math.min(down * 46 + 20, 380);
  return {
    mode: "over", maps: [Math.min(second, sorted ? second : across * 50 + 26), over],
    lines: [first, Math.min(rows, Math.max(high, 420) + 260)], large: [second, Math.min(second, most * 34 + LABELS, high)],
  };
}
