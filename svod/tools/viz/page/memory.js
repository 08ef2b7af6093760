// Memory: how much is alive at each step, where each buffer lies, and every buffer in a list.
const liveBytes = plan => {
  if (plan.live) return plan.live;
  const change = new Float64Array(plan.ops.length + 1);
  for (const one of plan.buffers) if (one.role === "intermediate") { change[one.first] += one.bytes; change[one.last + 1] -= one.bytes; }
  let sum = 0;
  plan.live = Array.from(change, by => (sum += by)).slice(0, plan.ops.length);
  return plan.live;
};
function memoryView(main, focus) {
  const plan = state.plan, steps = Math.max(1, plan.ops.length), live = liveBytes(plan);
  const held = plan.buffers.map((one, place) => ({ ...one, place })).filter(one => one.role === "intermediate");
  const peak = live.reduce((most, value) => Math.max(most, value), 0), peakStep = live.indexOf(peak);
  main.append(facts([["intermediates lie in", bytes(plan.memory.planned_bytes)], ["most alive at once", bytes(peak)], ["without sharing", bytes(plan.memory.logical_bytes)], ["inputs, outputs, weights", bytes(plan.memory.fixed_bytes)], ["intermediate buffers", counted(held.length)]]));
  const writer = one => plan.bySteps[one.writes[0]], canvas = element("canvas", "", { "aria-label": "buffers by step and address", role: "img" });
  let chosen = focus == null ? null : Number(focus), boxes = [];
  const about = element("div", "", { class: "quiet", "aria-live": "polite" });
  const starts = new Map(), ends = new Map();
  for (const one of held) ends.set(one.storage, Math.max(ends.get(one.storage) ?? 0, one.offset + one.bytes));
  let total = 0;
  for (const [storage, size] of ends) { starts.set(storage, total); total += size; }
  const left = 76, curve = 90, gap = 34, high = 300;
  const draw = () => {
    const [context, width] = sized(canvas, curve + gap + high + 22), across = (width - left - 8) / steps, down = high / Math.max(1, total);
    context.font = `11px ${FONT}`;
    context.textBaseline = "middle";
    context.strokeStyle = theme("line");
    context.fillStyle = theme("quiet");
    for (const step of niceSteps(0, steps, (width - left) / 70).filter(Number.isInteger)) { context.beginPath(); context.moveTo(left + step * across, 4); context.lineTo(left + step * across, curve + gap + high); context.stroke(); context.fillText(String(step), left + step * across + 2, curve + gap + high + 10); }
    context.fillText("alive", 8, 12);
    context.fillText(bytes(peak), 8, 28);
    context.fillText("addresses", 8, curve + gap + 8);
    context.fillText(bytes(total), 8, curve + gap + high - 8);
    context.beginPath();
    context.moveTo(left, curve);
    live.forEach((value, step) => { const y = curve - (curve - 10) * value / (peak || 1); context.lineTo(left + step * across, y); context.lineTo(left + (step + 1) * across, y); });
    context.lineTo(left + live.length * across, curve);
    context.fillStyle = theme("bar");
    context.fill();
    if (peak) { context.fillStyle = theme("ink"); context.fillText(`most at step ${peakStep}`, Math.min(width - 110, left + peakStep * across + 4), curve + 12); }
    boxes = held.map(one => [left + one.first * across, curve + gap + (starts.get(one.storage) + one.offset) * down, Math.max(1, (one.last - one.first + 1) * across), Math.max(1, one.bytes * down), one]);
    for (const [x, y, w, h, one] of boxes) {
      const op = writer(one);
      context.fillStyle = color(op?.name ?? "", chosen == null || chosen === one.place ? (op && !matches(op) ? 0.15 : 0.8) : 0.3);
      context.fillRect(x, y, Math.max(0.6, w - 0.6), Math.max(0.6, h - 0.6));
      if (w > 60 && h > 13 && op) { context.fillStyle = "#fff"; context.fillText(fitText(context, op.name, w - 10), x + 5, y + h / 2); }
      if (chosen === one.place) { context.strokeStyle = theme("ink"); context.lineWidth = 2; context.strokeRect(x, y, w, h); context.lineWidth = 1; }
    }
  };
  const repaint = painted(canvas, draw);
  const under = event => boxes.findLast(([x, y, w, h]) => event.offsetX >= x && event.offsetX <= x + w && event.offsetY >= y && event.offsetY <= y + h)?.[4];
  const describe = place => {
    if (place == null) { about.replaceChildren("Each box is a buffer: across, the steps it is alive; down, its addresses. Click one."); return; }
    const one = plan.buffers[place], op = one.writes.length ? plan.bySteps[one.writes[0]] : null;
    about.replaceChildren(element("b", bufferName(place)), ` ${one.role}, ${one.dtype}, ${bytes(one.bytes)}, `, one.role === "intermediate" ? `alive in steps ${one.first} to ${one.last} at ${bytes(one.offset)} of its memory` : "kept through the run", ...(op ? [", written by ", link(op.name, kernelAddress(op))] : []), ` · `, link(`${new Set([...one.reads, ...one.writes]).size} calls use it`, `kernels/buffer/${place}`));
  };
  const choose = place => { chosen = place; describe(place); repaint(); };
  canvas.addEventListener("pointermove", event => { const one = under(event); canvas.style.cursor = one ? "pointer" : ""; note(event, one && [bufferName(one.place), `${bytes(one.bytes)} ${one.dtype}`, `steps ${one.first} to ${one.last}`, writer(one) ? `written by ${writer(one).name}` : ""].filter(Boolean)); });
  canvas.addEventListener("pointerleave", () => note(null, null));
  canvas.addEventListener("click", event => { const one = under(event); choose(one ? one.place : null); });
  if (held.length) main.append(element("h2", "Intermediate buffers"), element("div", "", { class: "scrolls" }, canvas), about);
  else main.append(empty("The plan has no intermediate buffers."), about);
  describe(chosen);
  const rows = plan.buffers.map((one, place) => ({ ...one, place })).sort((a, b) => b.bytes - a.bytes);
  main.append(element("h2", "All buffers"), virtualList(rows, [
    { title: "buffer", of: one => bufferName(one.place), key: one => bufferName(one.place) }, { title: "for", of: one => one.role, width: "110px", key: one => one.role }, { title: "written by", of: one => one.writes.length ? writer(one).name : "", width: "minmax(0,1.6fr)" }, { title: "dtype", of: one => one.dtype, width: "80px", key: one => one.dtype },
    { title: "steps", of: one => one.role === "intermediate" ? `${one.first} to ${one.last}` : "all", width: "110px", key: one => one.first }, { title: "bytes", of: one => bytes(one.bytes), number: true, key: one => one.bytes, part: one => one.bytes / (rows[0].bytes || 1) }],
    one => { choose(one.place); history.replaceState(null, "", `#memory/${one.place}`); main.scrollTop = 0; }, { height: 420, label: "all buffers", selected: focus == null ? -1 : rows.findIndex(one => one.place === chosen) }));
}
