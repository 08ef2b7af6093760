// What all views share: the data, elements, numbers as text, links, and a list that draws only what is seen.
const state = { data: null, plan: null, search: "", views: [], leave: null };
const element = (kind, text = "", attributes = {}, ...inside) => {
  const found = document.createElement(kind);
  found.textContent = text;
  for (const [name, value] of Object.entries(attributes)) if (value != null) found.setAttribute(name, value);
  found.append(...inside);
  return found;
};
const scaled = (value, units, base) => {
  let number = value, place = 0;
  while (number >= base && place < units.length - 1) { number /= base; place++; }
  return `${number >= 100 || Number.isInteger(number) ? Math.round(number) : number.toFixed(1)} ${units[place]}`;
};
const bytes = value => value == null ? "–" : scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const time = ns => ns == null ? "–" : scaled(ns, ["ns", "µs", "ms", "s"], 1000);
const flop = value => value == null ? "–" : scaled(value, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"], 1000);
const counted = number => Number(number).toLocaleString("en");
const share = part => part == null || !Number.isFinite(part) ? "–" : `${(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`;
const hueOf = text => {
  let hash = 7;
  for (const letter of text) hash = (hash * 31 + letter.charCodeAt(0)) >>> 0;
  return (hash * 137.508) % 360;
};
const color = (text, alpha = 1) => `hsl(${hueOf(text)} 42% 50% / ${alpha})`;

// -- the plan ---------------------------------------------------------------------------------------
const originOf = op => op.origin == null ? null : state.plan.origins[op.origin];
const placeText = origin => origin ? `${origin.file.split(/[/\\]/).at(-1)}:${origin.line}` : "";
const goto = address => { if (location.hash === `#${address}`) show(); else location.hash = address; };
const link = (text, address, attributes = {}) => element("a", text, { href: `#${address}`, ...attributes });
const kernelAddress = op => op.kernel == null ? `graph/calls/${op.index}` : `kernel/${op.kernel}/${op.index}`;
const matchesText = (op, text) => `${op.name} ${originOf(op)?.module ?? ""} ${placeText(originOf(op))}`.toLowerCase().includes(text);
const matches = op => !state.search || matchesText(op, state.search);
const bufferName = place => {
  const one = state.plan.buffers[place];
  return one.name || `${one.role} ${place}`;
};
// What a plan does not say itself, but follows from it: ops by step, and who wrote what a step reads.
function prepared(plan) {
  if (plan.bySteps) return plan;
  plan.ops.forEach((op, index) => { op.index = index; });
  plan.bySteps = [...plan.ops].sort((a, b) => a.step - b.step);
  plan.spent = plan.ops.reduce((sum, op) => sum + (op.ns ?? 0), 0);
  const last = new Map();
  for (const op of plan.bySteps) {
    op.from = op.reads.map(place => last.get(place) ?? null);
    for (const place of op.writes) last.set(place, op.index);
  }
  return plan;
}

// -- pieces of pages --------------------------------------------------------------------------------
const facts = pairs => {
  const found = element("div", "", { class: "facts" });
  for (const [name, value] of pairs) found.append(element("div", "", {}, element("b", value), element("span", name, { class: "quiet" })));
  return found;
};
const empty = text => element("p", text, { class: "empty" });
const reasonText = reason => {
  if (!reason) return "";
  const [rule, stored] = reason;
  return `${stored ? "stored" : "computed at each use"}: ${state.plan.rules[rule] ?? rule}`;
};
// Why a value is stored or not: the rule in words, and the two costs as bars where they were compared.
function reasonBox(reason) {
  const box = element("div", "", { class: "reason" });
  if (!reason) return box;
  const [, stored, uses, evaluations, elements, inline, kept] = reason;
  box.append(element("p", reasonText(reason)));
  if (uses) box.append(element("p", `${counted(uses)} use${uses === 1 ? "" : "s"}, ${counted(elements)} elements, ${counted(evaluations)} evaluations`, { class: "quiet" }));
  if (inline == null || kept == null) return box;
  const most = Math.max(inline, kept, 1);
  for (const [name, cost, chosen] of [["at each use", inline, !stored], ["stored once", kept, stored]]) {
    const bar = element("i");
    bar.style.width = `${Math.max(1, 100 * cost / most)}%`;
    box.append(element("div", "", { class: chosen ? "cost chosen" : "cost" }, element("span", name), element("div", "", {}, bar), element("span", counted(Math.round(cost)), { class: "number" })));
  }
  return box;
}

// A list of any length: only the rows in sight are elements. Columns are {title, of, number, width, key}.
const ROW = 28;
function virtualList(items, columns, open, { height = null, selected = -1, label = "list" } = {}) {
  const box = element("div", "", { class: "list", tabindex: "0", role: "listbox", "aria-label": label });
  const template = columns.map(column => column.width ?? (column.number ? "90px" : "minmax(0,1fr)")).join(" ");
  const head = element("div", "", { class: "row head" }), inner = element("div");
  head.style.gridTemplateColumns = template;
  let rows = items, here = selected, sorted = null;
  for (const column of columns) {
    const cell = element("span", column.title ?? "", { class: column.number ? "number" : "" });
    if (column.key) {
      cell.classList.add("sorts");
      cell.addEventListener("click", () => {
        const down = sorted?.column === column ? !sorted.down : Boolean(column.number);
        sorted = { column, down };
        rows = [...items].sort((a, b) => { const x = column.key(a), y = column.key(b); return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); });
        for (const other of head.children) delete other.dataset.sorted;
        cell.dataset.sorted = down ? "▾" : "▴";
        draw();
      });
    }
    head.append(cell);
  }
  inner.style.height = `${items.length * ROW}px`;
  inner.style.position = "relative";
  box.append(head, inner);
  if (height) box.style.height = `${Math.min(height, (items.length + 1) * ROW + 2)}px`;
  const draw = () => {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 4), last = Math.min(rows.length, first + Math.ceil(box.clientHeight / ROW) + 8);
    const drawn = [];
    for (let number = first; number < last; number++) {
      const row = element("div", "", { class: number === here ? "row here" : "row", role: "option", "aria-selected": number === here });
      row.style.top = `${number * ROW}px`;
      row.style.gridTemplateColumns = template;
      for (const column of columns) {
        const cell = element("span", String(column.of(rows[number])), { class: column.number ? "number" : column.quiet ? "quiet" : "" });
        if (column.part) {
          const part = column.part(rows[number]);
          if (part > 0) cell.style.backgroundImage = `linear-gradient(to left, var(--bar) ${Math.min(100, 100 * part)}%, transparent 0)`;
        }
        row.append(cell);
      }
      row.addEventListener("click", () => open(rows[number]));
      drawn.push(row);
    }
    inner.replaceChildren(...drawn);
  };
  box.addEventListener("scroll", () => requestAnimationFrame(draw));
  box.addEventListener("keydown", event => {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9 }[event.key];
    if (step) {
      here = Math.max(0, Math.min(rows.length - 1, here + step));
      const top = here * ROW;
      if (top < box.scrollTop) box.scrollTop = top;
      else if (top + 2 * ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + 2 * ROW + 2 - box.clientHeight;
      draw();
      event.preventDefault();
    } else if (event.key === "Enter" && rows[here]) open(rows[here]);
  });
  requestAnimationFrame(() => { if (here > 0) box.scrollTop = here * ROW - box.clientHeight / 2; draw(); });
  new ResizeObserver(draw).observe(box);
  return box;
}
