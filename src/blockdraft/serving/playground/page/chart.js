// Draws how many steps committed how many tokens, as SVG made here.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 150;
const TOP = 18;
const BOTTOM = 22;
const MIN_COLUMNS = 8;

// Replaces the drawing in `element` by one of `widths`: a Map from tokens in a step to steps.
export function drawWidths(element, widths) {
  const numColumns = Math.max(MIN_COLUMNS, ...widths.keys());
  const most = Math.max(1, ...widths.values());
  const column = WIDTH / numColumns;
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  svg.setAttribute("aria-label", describe(widths));
  const floor = HEIGHT - BOTTOM;
  svg.append(make("line", { x1: 0, x2: WIDTH, y1: floor, y2: floor, class: "axis" }));
  // Beyond 16 columns there is room for every second number only.
  const every = numColumns > 16 ? 2 : 1;
  for (let width = 1; width <= numColumns; width += 1) {
    const middle = (width - 0.5) * column;
    const count = widths.get(width) ?? 0;
    const height = (count / most) * (floor - TOP);
    if (count > 0) svg.append(bar(middle, floor, column, Math.max(2, height)));
    if (count > 0 && numColumns <= 16) {
      svg.append(label(middle, floor - Math.max(2, height) - 5, count, "count"));
    }
    if (width % every === 0 || width === 1) svg.append(label(middle, HEIGHT - 6, width, "tick"));
  }
  element.replaceChildren(svg);
}

function bar(middle, floor, column, height) {
  const width = column * 0.68;
  return make("rect", {
    x: (middle - width / 2).toFixed(2),
    y: (floor - height).toFixed(2),
    width: width.toFixed(2),
    height: height.toFixed(2),
    rx: Math.min(3, width / 4).toFixed(2),
    class: "column",
  });
}

function label(x, y, text, name) {
  const element = make("text", { x: x.toFixed(2), y: y.toFixed(2), class: name });
  element.textContent = String(text);
  return element;
}

function make(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function describe(widths) {
  const parts = [...widths].sort(([a], [b]) => a - b).map(([width, steps]) => `${width}: ${steps}`);
  if (parts.length === 0) return "Steps by tokens committed: none yet";
  return `Steps by tokens committed: ${parts.join(", ")}`;
}
