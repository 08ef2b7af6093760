// What all views share: the data, elements, numbers as text, and a list that draws only what is seen.
const state = { data: null, plan: null, search: "", views: [] };
const element = (kind, text = "", attributes = {}) => {
  const found = document.createElement(kind);
  found.textContent = text;
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  return found;
};
const scaled = (value, units, base) => {
  let number = value, place = 0;
  while (number >= base && place < units.length - 1) { number /= base; place++; }
  return `${number >= 100 || Number.isInteger(number) ? Math.round(number) : number.toFixed(1)} ${units[place]}`;
};
const bytes = value => value == null ? "–" : scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const time = ns => ns == null ? "–" : scaled(ns, ["ns", "µs", "ms", "s"], 1000);
const color = (text, alpha = 1) => {
  let hash = 7;
  for (const letter of text) hash = (hash * 31 + letter.charCodeAt(0)) >>> 0;
  return `hsl(${(hash * 137.508) % 360} 45% 52% / ${alpha})`;
};
const originOf = op => op.origin == null ? null : state.plan.origins[op.origin];
const placeText = origin => origin ? `${origin.file}:${origin.line}` : "";
const facts = pairs => {
  const found = element("div", "", { class: "facts" });
  for (const [name, value] of pairs) {
    const fact = element("div");
    fact.append(element("b", value), element("span", name, { class: "quiet" }));
    found.append(fact);
  }
  return found;
};
const reasonText = reason => {
  if (!reason) return "";
  const [rule, stored, uses, evaluations, elements, inline, kept] = reason;
  let text = `${stored ? "stored" : "computed at each use"}: ${state.plan.rules[rule] ?? rule}`;
  if (inline != null) text += ` (at each use ${Math.round(inline).toLocaleString("en")}, stored ${Math.round(kept).toLocaleString("en")})`;
  return uses ? `${text}; ${uses} uses` : text;
};
// A list of any length: only the rows in sight are elements.
function virtualList(items, columns, template, open) {
  const box = element("div", "", { class: "list", tabindex: "0", role: "listbox" });
  const inner = element("div");
  inner.style.height = `${items.length * 28}px`;
  box.append(inner);
  let here = 0;
  const draw = () => {
    const first = Math.max(0, Math.floor(box.scrollTop / 28) - 4);
    const last = Math.min(items.length, first + Math.ceil(box.clientHeight / 28) + 8);
    const rows = [];
    for (let number = first; number < last; number++) {
      const row = element("div", "", { class: number === here ? "row here" : "row", role: "option" });
      row.style.top = `${number * 28}px`;
      row.style.gridTemplateColumns = template;
      for (const column of columns) {
        const value = column(items[number]);
        row.append(element("span", String(value), typeof value === "string" && /^[\d.,–]+ ?\S*$/.test(value) ? { class: "number" } : {}));
      }
      row.addEventListener("click", () => open(items[number]));
      rows.push(row);
    }
    inner.replaceChildren(...rows);
  };
  box.addEventListener("scroll", () => requestAnimationFrame(draw));
  box.addEventListener("keydown", event => {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 15, PageUp: -15 }[event.key];
    if (step) {
      here = Math.max(0, Math.min(items.length - 1, here + step));
      box.scrollTop = Math.max(0, Math.min(here * 28, Math.max(box.scrollTop, here * 28 - box.clientHeight + 28)));
      draw();
      event.preventDefault();
    } else if (event.key === "Enter" && items[here]) open(items[here]);
  });
  requestAnimationFrame(draw);
  return box;
}
const sized = (canvas, height) => {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return [context, width];
};
