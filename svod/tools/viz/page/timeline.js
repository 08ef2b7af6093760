// Time: one run per thread, and the steps of preparation as a flame; both zoom, and sum what is selected.
const LANE = 22, AXIS = 22;
// lanes: {name, rows, slices: [{start, end, row, name, ref}]} in order of their start.
function timeChart(main, lanes, wall, { isFaint = () => false, lines, open, sumsOf, area = null, focus = null, label }) {
  const canvas = element("canvas", "", { tabindex: "0", role: "application", "aria-label": `${label}: arrows move and zoom, drag selects, Escape shows all` }), below = element("div");
  const buttons = element("div", "", { class: "bar" }), sum = element("span", "wheel zooms, drag selects, shift and wheel or ← → move", { class: "quiet" });
  const button = (text, act) => { const found = element("button", text); found.addEventListener("click", act); buttons.append(found); };
  let from = 0, to = wall, chosen = null, start = null, hover = null;
  const left = 96, areaHeight = area ? 54 : 0;
  let top = AXIS;
  for (const lane of lanes) { lane.top = top; top += lane.rows * LANE + 10; }
  const height = top + areaHeight + 6, most = area ? Math.max(1, ...area.map(row => row[1])) : 1;
  const limit = () => { const length = Math.min(wall, Math.max(to - from, wall / 1e5, 20)); from = Math.max(0, Math.min(from, wall - length)); to = from + length; };
  const draw = () => {
    const [context, width] = sized(canvas, height), scale = (width - left) / (to - from), x = at => left + (at - from) * scale;
    const ink = theme("ink"), quiet = theme("quiet"), lineColor = theme("line");
    context.font = `11px ${FONT}`;
    context.textBaseline = "middle";
    context.fillStyle = quiet;
    context.strokeStyle = lineColor;
    context.textAlign = "center";
    for (const at of niceSteps(from, to, (width - left) / 90)) { context.beginPath(); context.moveTo(x(at), AXIS - 4); context.lineTo(x(at), height); context.stroke(); const text = at ? time(at) : "0", half = context.measureText(text).width / 2; context.fillText(text, Math.min(width - half - 4, x(at)), AXIS / 2 - 1); }
    context.textAlign = "left";
    context.save();
    context.beginPath();
    context.rect(left, 0, width - left, height);
    context.clip();
    for (const lane of lanes) {
      const ends = new Float64Array(lane.rows).fill(-1);
      for (const piece of lane.slices) {
        if (piece.end < from) continue;
        if (piece.start > to) break;
        const x0 = Math.max(left - 2, x(piece.start)), x1 = Math.min(width + 2, x(piece.end));
        if (x1 < ends[piece.row] + 0.4) continue;
        const wide = Math.max(0.8, x1 - x0), y = lane.top + piece.row * LANE;
        context.fillStyle = color(piece.name, isFaint(piece) ? 0.15 : 0.88);
        context.fillRect(x0, y, wide > 3 ? wide - 0.5 : wide, LANE - 2);
        if (piece === hover || (focus != null && piece.ref === focus)) { context.strokeStyle = ink; context.lineWidth = 2; context.strokeRect(x0 + 1, y + 1, Math.max(1, wide - 2), LANE - 4); context.lineWidth = 1; context.strokeStyle = lineColor; }
        ends[piece.row] = x1;
        if (x1 - x0 > 34) { context.fillStyle = "#fff"; context.fillText(fitText(context, piece.name, x1 - x0 - 10), x0 + 5, y + LANE / 2 - 0.5); }
      }
    }
    if (area) {
      const floor = height - 6, high = areaHeight - 10;
      context.beginPath();
      context.moveTo(x(0), floor);
      let before = 0;
      for (const [at, value] of area) { const px = x(at); context.lineTo(px, floor - high * before / most); context.lineTo(px, floor - high * value / most); before = value; }
      context.lineTo(x(wall), floor - high * before / most);
      context.lineTo(x(wall), floor);
      context.fillStyle = theme("bar");
      context.fill();
    }
    if (chosen) { context.fillStyle = theme("select"); context.fillRect(x(chosen[0]), AXIS - 4, (chosen[1] - chosen[0]) * scale, height); }
    context.restore();
    context.fillStyle = quiet;
    for (const lane of lanes) context.fillText(fitText(context, lane.name, left - 10), 6, lane.top + LANE / 2 - 1);
    if (area) { context.fillText("memory", 6, height - areaHeight / 2 - 8); context.fillText(bytes(most), 6, height - areaHeight / 2 + 8); }
  };
  const repaint = painted(canvas, draw);
  const at = event => from + Math.max(0, event.offsetX - left) / (canvas.clientWidth - left) * (to - from);
  const under = event => {
    const when = at(event), slack = (to - from) / canvas.clientWidth * 2;
    for (const lane of lanes) {
      const row = Math.floor((event.offsetY - lane.top) / LANE);
      if (row < 0 || row >= lane.rows || event.offsetX < left) continue;
      return lane.slices.findLast(piece => piece.row === row && piece.start - slack <= when && piece.end + slack >= when) ?? null;
    }
    return null;
  };
  const zoom = (factor, middle = (from + to) / 2) => { const length = Math.min(wall, (to - from) * factor), part = (middle - from) / (to - from); from = middle - length * part; to = from + length; limit(); repaint(); };
  const move = part => { const by = (to - from) * part; from += by; to += by; limit(); repaint(); };
  const selected = () => {
    const pieces = [], [first, last] = chosen ?? [0, wall];
    for (const lane of lanes) for (const piece of lane.slices) { const length = Math.min(piece.end, last) - Math.max(piece.start, first); if (length > 0) pieces.push([piece, length]); }
    below.replaceChildren(element("h2", chosen ? `Selected: ${time(last - first)}` : "All of it"), ...sumsOf(pieces, last - first));
  };
  const all = () => { from = 0; to = wall; chosen = null; selected(); repaint(); };
  button("Zoom in", () => zoom(0.5));
  button("Zoom out", () => zoom(2));
  button("To the selection", () => { if (chosen) { [from, to] = chosen; limit(); repaint(); } });
  button("Show all", all);
  buttons.append(sum);
  canvas.addEventListener("wheel", event => { event.preventDefault(); if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move((event.deltaX || event.deltaY) / 800); else zoom(Math.exp(event.deltaY * 0.002), at(event)); }, { passive: false });
  canvas.addEventListener("pointerdown", event => { start = { when: at(event), x: event.offsetX }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", event => {
    if (start && Math.abs(event.offsetX - start.x) > 3) { const now = at(event); chosen = [Math.min(start.when, now), Math.max(start.when, now)]; repaint(); return; }
    const found = under(event);
    if (found !== hover) { hover = found; canvas.style.cursor = found ? "pointer" : "crosshair"; repaint(); }
    note(event, found && lines(found));
  });
  canvas.addEventListener("pointerleave", () => note(null, null));
  canvas.addEventListener("pointerup", event => {
    const isClick = start && Math.abs(event.offsetX - start.x) <= 3, found = isClick && under(event);
    start = null;
    if (isClick) { if (found && open) open(found); } else if (chosen && chosen[1] > chosen[0]) selected();
  });
  canvas.addEventListener("dblclick", all);
  canvas.addEventListener("keydown", event => {
    const act = { ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), ArrowUp: () => zoom(0.7), ArrowDown: () => zoom(1.4), "+": () => zoom(0.7), "-": () => zoom(1.4), Home: all, Escape: all }[event.key];
    if (act && !(event.key === "Escape" && !chosen && from === 0 && to === wall)) { act(); event.preventDefault(); event.stopPropagation(); }
  });
  const wanted = focus == null ? null : lanes.flatMap(lane => lane.slices).find(piece => piece.ref === focus);
  if (wanted) { const length = Math.max((wanted.end - wanted.start) * 12, wall / 500); from = (wanted.start + wanted.end - length) / 2; to = from + length; limit(); }
  const box = element("div", "", { class: "scrolls" }, canvas);
  main.append(buttons, box, below);
  selected();
  requestAnimationFrame(() => canvas.focus({ preventScroll: true }));
  state.chart = { window: () => [from, to], chosen: () => chosen };
}
function timelineView(main, focus) {
  const { lanes, wall } = state.plan.timeline, plan = state.plan;
  if (!wall) { main.append(empty("The plan was not run for this page, so there are no times.")); return; }
  const shown = lanes.map(lane => {
    const slices = [];
    for (let at = 0; at < lane.slices.length; at += 3) slices.push({ start: lane.slices[at + 1], end: lane.slices[at + 2], row: 0, name: plan.ops[lane.slices[at]].name, ref: lane.slices[at] });
    return { name: lane.name, rows: 1, slices };
  });
  const busy = shown.reduce((sum, lane) => sum + lane.slices.reduce((inner, piece) => inner + piece.end - piece.start, 0), 0);
  main.append(element("h2", `One run: ${time(wall)}, threads are busy ${share(busy / (wall * shown.length))} of it`));
  const first = new Map();
  for (const lane of shown) for (const piece of lane.slices) { const step = plan.ops[piece.ref].step; if (!first.has(step) || first.get(step) > piece.start) first.set(step, piece.start); }
  const live = liveBytes(plan), area = [...first].sort((a, b) => a[1] - b[1]).map(([step, when]) => [when, live[step]]);
  timeChart(main, shown, wall, {
    label: "timeline", focus: focus == null ? null : Number(focus), area, isFaint: piece => !matches(plan.ops[piece.ref]),
    lines: piece => [piece.name, time(piece.end - piece.start), originOf(plan.ops[piece.ref])?.module, placeText(originOf(plan.ops[piece.ref]))].filter(Boolean),
    open: piece => goto(kernelAddress(plan.ops[piece.ref])),
    sumsOf: (pieces, length) => {
      const add = key => { const found = new Map(); for (const [piece, ns] of pieces) { const name = key(plan.ops[piece.ref]) || "(none)", row = found.get(name) ?? { name, ns: 0, calls: new Set(), op: plan.ops[piece.ref] }; row.ns += ns; row.calls.add(piece.ref); found.set(name, row); } return [...found.values()].sort((a, b) => b.ns - a.ns); };
      const sum = pieces.reduce((all, [, ns]) => all + ns, 0), table = (title, rows, open) => element("section", "", {}, element("h3", title), virtualList(rows, [{ title: "", of: row => row.name }, { title: "calls", of: row => counted(row.calls.size), number: true, width: "60px" }, { title: "time", of: row => time(row.ns), number: true, part: row => row.ns / sum }], open, { height: 300, label: `selection ${title}` }));
      return [element("p", `${counted(new Set(pieces.map(([piece]) => piece.ref)).size)} calls, ${time(sum)} of work, ${share(sum / (length * shown.length))} of ${shown.length} thread${shown.length === 1 ? "" : "s"}`, { class: "quiet" }),
        element("div", "", { class: "columns" }, table("By kernel", add(op => op.name), row => goto(kernelAddress(row.op))), table("By module", add(op => originOf(op)?.module || placeText(originOf(op))), row => goto(row.op.origin == null ? "kernels" : `kernels/line/${row.op.origin}`)))];
    } });
}
// Steps of preparation, inner ones below those they are a part of.
function preparationView(main) {
  const spans = state.plan.preparation;
  if (!spans?.length) { main.append(empty("Nothing was prepared in the process that made this page: the plan was loaded.")); return; }
  const threads = new Map();
  for (const [name, start, end, thread] of spans) (threads.get(thread) ?? threads.set(thread, []).get(thread)).push({ name, start, end });
  const lanes = [...threads].map(([thread, slices]) => {
    slices.sort((a, b) => a.start - b.start || b.end - a.end);
    const open = [];
    let rows = 1;
    for (const piece of slices) { while (open.length && open.at(-1).end <= piece.start) open.pop(); piece.row = open.length; open.push(piece); rows = Math.max(rows, open.length); }
    return { name: thread ? `thread ${thread}` : "main thread", rows, slices };
  });
  const own = new Map(), wall = withoutPauses(lanes);
  for (const lane of lanes) for (const piece of lane.slices) if (!piece.row) own.set(piece.name, (own.get(piece.name) ?? 0) + piece.end - piece.start);
  main.append(element("h2", `Preparation in this process: ${time([...own.values()].reduce((sum, ns) => sum + ns, 0))}`, {}, element("span", "  pauses are left out", { class: "quiet chip" })));
  const rowsOf = pieces => { const found = new Map(); for (const [piece, ns] of pieces) { const row = found.get(piece.name) ?? { name: piece.name, ns: 0, count: 0 }; row.ns += ns; row.count++; found.set(piece.name, row); } return [...found.values()].sort((a, b) => b.ns - a.ns); };
  const table = rows => virtualList(rows, [{ title: "step", of: row => row.name }, { title: "times", of: row => counted(row.count), number: true }, { title: "time", of: row => time(row.ns), number: true, part: row => row.ns / (rows[0]?.ns || 1) }], () => {}, { height: 320, label: "steps of preparation" });
  timeChart(main, lanes, wall, { label: "preparation", isFaint: piece => state.search && !piece.name.toLowerCase().includes(state.search), lines: piece => [piece.name, time(piece.end - piece.start)], open: null, sumsOf: pieces => [table(rowsOf(pieces))] });
}
// Times in which nothing was prepared become short; returns the end.
function withoutPauses(lanes) {
  const pieces = lanes.flatMap(lane => lane.slices).sort((a, b) => a.start - b.start), busy = pieces.reduce((sum, piece) => sum + (piece.row ? 0 : piece.end - piece.start), 0);
  let end = 0, shift = 0;
  for (const piece of pieces) {
    const pause = piece.start - Math.max(end, 0), most = busy / 200;
    if (pause > most) shift += pause - most;
    end = Math.max(end, piece.end);
    piece.start -= shift;
    piece.end -= shift;
  }
  return end - shift || 1;
}
