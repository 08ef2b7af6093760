// Views that are lists: overview, the calls in order, and two plans side by side.
const sums = key => {
  const found = new Map();
  for (const op of state.plan.ops) {
    const name = key(op) ?? "", row = found.get(name) ?? { name, calls: 0, ns: 0, flops: 0, origin: op.origin };
    row.calls++;
    row.ns += op.ns ?? 0;
    row.flops += state.plan.kernels[op.kernel]?.flops ?? 0;
    found.set(name, row);
  }
  return [...found.values()].sort((a, b) => b.ns - a.ns || b.calls - a.calls);
};
const timeColumn = of => ({ title: "time", of: row => time(of(row) || null), number: true, key: row => of(row) ?? 0, part: row => (of(row) ?? 0) / (state.plan.spent || 1) });
// Modules as a tree written in lines: what is inside counts for what is around it.
function moduleRows() {
  const found = new Map();
  for (const op of state.plan.ops) {
    const path = originOf(op)?.module || "(outside of modules)", parts = pathParts(path);
    for (let depth = 1; depth <= parts.length; depth++) {
      const name = parts.slice(0, depth).join("\n");
      const row = found.get(name) ?? { parts: parts.slice(0, depth), calls: 0, ns: 0 };
      row.calls++;
      row.ns += op.ns ?? 0;
      found.set(name, row);
    }
  }
  return [...found.entries()].sort(([a], [b]) => a < b ? -1 : 1).map(([, row]) => row);
}
function overviewView(main) {
  const plan = state.plan, memory = plan.memory, roof = plan.roofline;
  const flops = plan.ops.reduce((sum, op) => sum + (plan.kernels[op.kernel]?.flops ?? 0), 0);
  const wall = plan.timeline.wall || null, pairs = [
    ["device", plan.device], ["calls", counted(plan.ops.length)], ["distinct kernels", counted(plan.kernels.length)], ["one run", time(wall)],
    ["work", flop(flops)], ["intermediates", bytes(memory.planned_bytes)], ["if nothing shared memory", bytes(memory.logical_bytes)], ["inputs, outputs, weights", bytes(memory.fixed_bytes)]];
  if (roof && wall) pairs.push(["of the machine's FLOP/s", share(flops / wall / roof.gflops)]);
  main.append(facts(pairs));
  if (plan.problem) main.append(element("p", `A run for the times failed: ${plan.problem}`, { class: "quiet" }));
  const variables = Object.entries(plan.variables ?? {});
  if (variables.length) main.append(element("p", `sizes: ${variables.map(([name, value]) => `${name} = ${value}`).join(", ")}`, { class: "quiet" }));
  const columns = element("div", "", { class: "columns" });
  const modules = moduleRows(), lines = sums(op => placeText(originOf(op)));
  columns.append(
    element("section", "", {}, element("h2", "By module"), virtualList(modules, [
      { title: "module", of: row => `${"\u2003".repeat(row.parts.length - 1)}${row.parts.at(-1)}` }, { title: "calls", of: row => counted(row.calls), number: true, width: "60px", key: row => row.calls }, timeColumn(row => row.ns)],
      row => goto(`kernels/module/${encodeURIComponent(row.parts.join("\n"))}`), { height: 440, label: "time by module" })),
    element("section", "", {}, element("h2", "By line"), virtualList(lines, [
      { title: "line", of: row => row.name || "(no line)", width: "minmax(90px,auto)" }, { title: "", of: row => plan.origins[row.origin]?.text ?? "", quiet: true },
      { title: "calls", of: row => counted(row.calls), number: true, width: "60px", key: row => row.calls }, timeColumn(row => row.ns)],
      row => goto(row.origin == null ? "kernels" : `kernels/line/${row.origin}`), { height: 440, label: "time by line" })));
  main.append(columns);
  const kernels = sums(op => op.kernel == null ? op.name : String(op.kernel)).slice(0, 200).map(row => ({ ...row, shown: plan.kernels[row.name]?.name ?? row.name }));
  main.append(element("h2", "Kernels that take longest"), virtualList(kernels, [
    { title: "kernel", of: row => row.shown }, { title: "calls", of: row => counted(row.calls), number: true, width: "60px", key: row => row.calls },
    { title: "GFLOP/s", of: row => row.ns && row.flops ? (row.flops / row.ns).toFixed(1) : "–", number: true, key: row => row.ns ? row.flops / row.ns : 0 }, timeColumn(row => row.ns)],
    row => goto(plan.kernels[row.name] ? `kernel/${row.name}/${plan.ops.findIndex(op => String(op.kernel) === row.name)}` : "kernels"), { height: 300, label: "kernels by time" }));
  sharding(main, plan);
}
// Devices and what moves between them, where there is more than one.
function sharding(main, plan) {
  const moved = plan.ops.filter(op => op.mesh), devices = new Map();
  for (const op of plan.ops) {
    const row = devices.get(op.device) ?? { name: op.device, calls: 0, ns: 0, bytes: 0 };
    row.calls++;
    row.ns += op.ns ?? 0;
    devices.set(op.device, row);
  }
  const storages = new Set();
  for (const one of plan.buffers) if (devices.has(one.device) && !storages.has(one.storage)) { storages.add(one.storage); devices.get(one.device).bytes += one.bytes; }
  if (devices.size > 1) main.append(element("h2", "Devices"), virtualList([...devices.values()], [
    { title: "device", of: row => row.name }, { title: "calls", of: row => counted(row.calls), number: true }, { title: "memory", of: row => bytes(row.bytes), number: true }, timeColumn(row => row.ns)],
    row => { state.search = ""; goto(`kernels/device/${encodeURIComponent(row.name)}`); }, { height: 200, label: "devices" }));
  if (moved.length) main.append(element("h2", "Moved between ranks"), virtualList(moved, [
    { title: "what", of: op => op.name.replace("distributed.", "").replaceAll("_", " ") }, { title: "mesh", of: op => op.mesh }, { title: "along", of: op => op.axis },
    { title: "line", of: op => placeText(originOf(op)) }, { title: "bytes", of: op => bytes(op.reads.reduce((sum, place) => sum + plan.buffers[place].bytes, 0)), number: true }, timeColumn(op => op.ns)],
    op => goto(`graph/calls/${op.index}`), { height: 260, label: "collectives" }));
}
const filters = {
  line: place => ({ name: placeText(state.plan.origins[place]), test: op => originOf(op)?.file === state.plan.origins[place]?.file && originOf(op)?.line === state.plan.origins[place]?.line }),
  module: path => { const wanted = path.split("\n"); return { name: wanted.join("."), test: op => { const parts = pathParts(originOf(op)?.module || "(outside of modules)"); return wanted.every((part, place) => parts[place] === part); } }; },
  kernel: number => ({ name: state.plan.kernels[number]?.name, test: op => op.kernel === Number(number) }),
  buffer: place => ({ name: bufferName(place), test: op => op.reads.includes(Number(place)) || op.writes.includes(Number(place)) }),
  device: name => ({ name, test: op => op.device === name }),
};
function kernelsView(main, kind, value) {
  const filter = filters[kind]?.(decodeURIComponent(value));
  const rows = state.plan.bySteps.filter(op => (!filter || filter.test(op)) && matches(op));
  const spent = rows.reduce((sum, op) => sum + (op.ns ?? 0), 0);
  const title = element("h2", `${counted(rows.length)} call${rows.length === 1 ? "" : "s"} in order${spent ? `, ${time(spent)}` : ""}`);
  if (filter) title.append(link(`${kind}: ${filter.name} ✕`, "kernels", { class: "chip", title: "show all calls" }));
  main.append(title);
  if (!rows.length) { main.append(empty(state.search ? `Nothing is called “${state.search}” here.` : "There are no calls.")); return; }
  const list = virtualList(rows, [
    { title: "step", of: op => String(op.step), number: true, width: "52px", key: op => op.step }, { title: "kernel", of: op => op.name, width: "minmax(0,2fr)", key: op => op.name },
    { title: "module", of: op => originOf(op)?.module ?? "", width: "minmax(0,1.6fr)", key: op => originOf(op)?.module ?? "" }, { title: "line", of: op => placeText(originOf(op)), quiet: true, key: op => placeText(originOf(op)) },
    { title: "work", of: op => flop(state.plan.kernels[op.kernel]?.flops), number: true, width: "100px", key: op => state.plan.kernels[op.kernel]?.flops ?? -1 }, { ...timeColumn(op => op.ns), width: "80px" }],
    op => goto(kernelAddress(op)), { label: "calls in order" });
  list.classList.add("tall");
  main.append(list);
  if (document.activeElement === document.body || document.activeElement === main) list.focus({ preventScroll: true });
}
async function compareView(main) {
  const { plans, before } = state.data;
  if (plans.length < 2) { main.append(empty("There is one plan. Give another as before= to see both side by side.")); return; }
  const now = plans.indexOf(state.plan), other = state.beside ?? (before !== null && before !== now ? before : now ? now - 1 : 1);
  const beside = prepared(await planAt(other));
  const choice = element("select", "", { "aria-label": "the other plan" }, ...plans.map((plan, place) => element("option", plan.title, { value: place })));
  choice.value = String(other);
  choice.addEventListener("change", () => { state.beside = Number(choice.value); show(); });
  const rows = new Map();
  for (const [place, plan] of [[1, state.plan], [0, beside]]) for (const op of plan.ops) {
    const row = rows.get(op.name) ?? { name: op.name, calls: [0, 0], ns: [0, 0], symbols: [new Set(), new Set()], op: [null, null] };
    row.calls[place]++;
    row.ns[place] += op.ns ?? 0;
    row.op[place] ??= op;
    if (op.kernel != null) row.symbols[place].add(`${plan.kernels[op.kernel].symbol} ${plan.kernels[op.kernel].opts}`);
    rows.set(op.name, row);
  }
  const word = row => !row.calls[0] ? "added" : !row.calls[1] ? "removed" : row.calls[0] !== row.calls[1] ? "other calls" : [...row.symbols[1]].some(one => !row.symbols[0].has(one)) ? "other loops" : "";
  const change = row => row.ns[1] - row.ns[0];
  const list = [...rows.values()].sort((a, b) => Math.abs(change(b)) - Math.abs(change(a)) || (word(b) ? 1 : 0) - (word(a) ? 1 : 0));
  const counts = {};
  for (const row of list) if (word(row)) counts[word(row)] = (counts[word(row)] ?? 0) + 1;
  const arrow = (a, b) => `${a} → ${b}`;
  main.append(element("div", "", { class: "bar" }, element("span", "before: "), choice, element("span", `now: ${state.plan.title}`)),
    facts([["calls", arrow(beside.ops.length, state.plan.ops.length)], ["one run", arrow(time(beside.timeline.wall || null), time(state.plan.timeline.wall || null))], ["intermediates", arrow(bytes(beside.memory.planned_bytes), bytes(state.plan.memory.planned_bytes))],
      ...Object.entries(counts).map(([name, number]) => [name, String(number)])]),
    element("h2", "Kernels by name, what changed most first"), virtualList(list, [
      { title: "kernel", of: row => row.name, width: "minmax(0,2fr)", key: row => row.name }, { title: "", of: word, width: "100px", key: word }, { title: "calls", of: row => arrow(row.calls[0], row.calls[1]), number: true, width: "110px" },
      { title: "time", of: row => arrow(time(row.ns[0] || null), time(row.ns[1] || null)), number: true, width: "180px" }, { title: "change", of: row => change(row) ? `${change(row) > 0 ? "+" : "−"}${time(Math.abs(change(row)))}` : "", number: true, key: change }],
      row => { if (row.op[1]) goto(kernelAddress(row.op[1])); }, { label: "kernels of both plans" }));
}
