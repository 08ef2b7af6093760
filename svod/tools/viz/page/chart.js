// Canvases: sizes in device pixels, colours of the theme, axes, and a note beside the pointer.
const themeColors = new Map();
const theme = name => {
  if (!themeColors.has(name)) {
    const probe = element("i", "", { style: `color: var(--${name}); display: none` });
    document.body.append(probe);
    themeColors.set(name, getComputedStyle(probe).color);
    probe.remove();
  }
  return themeColors.get(name);
};
const FONT = "system-ui, sans-serif";
const sized = (canvas, height) => {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return [context, width];
};
// Drawn at most once per frame, and again when the size or the theme changes.
function painted(canvas, draw) {
  let waits = false;
  const again = () => { if (!waits) { waits = true; requestAnimationFrame(() => { waits = false; if (canvas.isConnected) draw(); }); } };
  new ResizeObserver(again).observe(canvas);
  canvas.addEventListener("theme", again);
  return again;
}
const fitText = (context, text, width) => {
  if (context.measureText(text).width <= width) return text;
  let low = 0, high = text.length;
  while (low < high) { const middle = (low + high + 1) >> 1; if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle; else high = middle - 1; }
  return low > 1 ? `${text.slice(0, low)}…` : "";
};
const niceSteps = (from, to, most) => {
  const rough = (to - from) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough) || 1, found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
};
let noteElement = null;
const note = (event, lines) => {
  if (!noteElement) { noteElement = element("div", "", { class: "note" }); document.body.append(noteElement); }
  noteElement.hidden = !lines;
  if (!lines) return;
  noteElement.replaceChildren(...lines.map((line, place) => element(place ? "div" : "b", line)));
  const width = noteElement.offsetWidth, height = noteElement.offsetHeight;
  noteElement.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  noteElement.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
};
