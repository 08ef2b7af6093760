// The views: overview, modules, kernels, one kernel, timeline, memory, two plans side by side.
const goto = address => { location.hash = address; };
const matches = op => !state.search || `${op.name} ${originOf(op)?.module ?? ""} ${placeText(originOf(op))}`.toLowerCase().includes(state.search);
const opened = op => goto(op.kernel == null ? "kernels" : `kernel/${op.kernel}/${state.plan.ops.indexOf(op)}`);
const sums = key => {
  const found = new Map();
  for (const op of state.plan.ops) {
    const name = key(op) || "(none)", row = found.get(name) ?? { name, calls: 0, ns: 0 };
    row.calls++; row.ns += op.ns ?? 0;
    found.set(name, row);
  }
  return [...found.values()].sort((a, b) => b.ns - a.ns);
};
const filtered = name => () => { state.search = document.getElementById("search").value = name.toLowerCase(); goto("kernels"); };
state.views.push(["overview", "Overview", main => {
  const plan = state.plan, memory = plan.memory;
  main.append(facts([["device", plan.device], ["calls", String(plan.ops.length)], ["distinct kernels", String(plan.kernels.length)],
    ["wall time", time(plan.timeline.wall || null)], ["intermediates", bytes(memory.planned_bytes)], ["without sharing", bytes(memory.logical_bytes)], ["inputs, outputs, weights", bytes(memory.fixed_bytes)]]));
  for (const [title, key] of [["By module", op => originOf(op)?.module], ["By line", op => placeText(originOf(op))]]) {
    const rows = sums(key);
    const list = virtualList(rows, [row => row.name, row => `${row.calls}`, row => time(row.ns)], "minmax(0,1fr) 70px 90px", row => filtered(row.name === "(none)" ? "" : row.name)());
    list.style.height = `${Math.min(280, rows.length * 28 + 2)}px`;
    main.append(element("h2", title), list);
  }
}]);
state.views.push(["kernels", "Kernels", main => {
  const rows = state.plan.ops.filter(matches).sort((a, b) => a.step - b.step);
  main.append(element("h2", `${rows.length.toLocaleString("en")} calls in order`));
  const list = virtualList(rows, [op => `${op.step}`, op => op.name, op => originOf(op)?.module ?? "", op => placeText(originOf(op)), op => time(op.ns)],
    "50px minmax(0,2fr) minmax(0,1.4fr) minmax(0,1fr) 80px", opened);
  list.style.height = "calc(100vh - 130px)";
  main.append(list);
  list.focus({ preventScroll: true });
}]);
async function detailsOf(number) {
  const kernel = state.plan.kernels[number];
  if (!kernel.details && state.from) kernel.details = await (await fetch(`kernel/${state.data.plans.indexOf(state.plan)}/${number}`)).json();
  return kernel.details;
}
const withoutNumbers = line => line.replace(/%\d+/g, "%");
function passText(text, before) {
  const known = new Map(), found = element("pre");
  for (const line of before.split("\n")) known.set(withoutNumbers(line), (known.get(withoutNumbers(line)) ?? 0) + 1);
  for (const line of text.split("\n")) {
    const left = known.get(withoutNumbers(line)) ?? 0;
    known.set(withoutNumbers(line), left - 1);
    found.append(before && left <= 0 ? element("span", line, { class: "new" }) : line, "\n");
  }
  return found;
}
async function showKernel(main, number, call) {
  const kernel = state.plan.kernels[number], op = state.plan.ops[call] ?? state.plan.ops.find(one => one.kernel === number);
  const origin = originOf(op), seconds = op.ns, roof = state.plan.roofline;
  main.append(element("h2", kernel.name));
  const pairs = [["calls", String(kernel.calls)], ["time of this call", time(seconds)], ["work", kernel.flops == null ? "–" : scaled(kernel.flops, ["FLOP", "kFLOP", "MFLOP", "GFLOP"], 1000)], ["bytes", bytes(kernel.bytes)]];
  if (seconds && kernel.flops != null && roof) pairs.push(["of peak FLOP/s", `${(100 * kernel.flops / seconds / roof.gflops).toFixed(1)} %`], ["of memory rate", `${(100 * kernel.bytes / seconds / roof.gbs).toFixed(1)} %`]);
  main.append(facts(pairs));
  if (origin) main.append(element("p", `${placeText(origin)}  ${origin.module}`), ...(origin.text ? [element("pre", origin.text)] : []));
  main.append(element("p", reasonText(op.reason), { class: "quiet" }));
  const inside = (op.inside ?? []).map(([node, reason]) => `${kernel.nodes[node].text}\n    ${reasonText(reason)}`);
  const details = await detailsOf(number);
  const texts = [["Loops", (details?.opts ?? kernel.opts).join(", ") + "\n\n" + (details?.loops ?? "")]];
  if (!details?.passes?.length) texts.push(["Body", kernel.nodes.map(node => node.text).join("\n")]);
  if (inside.length) texts.push(["Fused values", inside.join("\n")]);
  for (const [place, step] of (details?.passes ?? []).entries()) texts.push([step.name, step.text, place ? details.passes[place - 1].text : ""]);
  if (details) texts.push(["LLVM IR", details.llvm], ["Assembly", details.asm]);
  const tabs = element("div", "", { class: "tabs" }), pane = element("div");
  texts.forEach(([name, text, before], place) => {
    const button = element("button", name);
    button.addEventListener("click", () => {
      for (const other of tabs.children) other.classList.toggle("here", other === button);
      pane.replaceChildren(before === undefined ? element("pre", text || "not known") : passText(text, before));
    });
    tabs.append(button);
    if (!place) button.click();
  });
  main.append(tabs, pane);
}
state.views.push(["timeline", "Timeline", main => {
  const { lanes, wall } = state.plan.timeline;
  if (!wall) { main.append(element("p", "The plan was not run for this page.", { class: "quiet" })); return; }
  const canvas = element("canvas"), note = element("p", "Wheel zooms, drag selects, double click shows all.", { class: "quiet" });
  const list = element("div");
  main.append(element("h2", `One run: ${time(wall)}`), canvas, note, list);
  let from = 0, to = wall, chosen = null, start = null;
  const draw = () => {
    const [context, width] = sized(canvas, lanes.length * 44 + 8), scale = width / (to - from);
    lanes.forEach((lane, row) => {
      let drawn = -1;
      for (let at = 0; at < lane.slices.length; at += 3) {
        const x = (lane.slices[at + 1] - from) * scale, end = (lane.slices[at + 2] - from) * scale;
        if (end < 0 || x > width || end < drawn + 0.5) continue;
        const op = state.plan.ops[lane.slices[at]];
        context.fillStyle = color(op.name, matches(op) ? 0.85 : 0.15);
        context.fillRect(x, row * 44 + 8, Math.max(1, end - x), 32);
        drawn = end;
        if (end - x > 60) { context.fillStyle = "#fff"; context.font = "11px system-ui"; context.save(); context.beginPath(); context.rect(x, row * 44, end - x - 4, 44); context.clip(); context.fillText(op.name, x + 5, row * 44 + 28); context.restore(); }
      }
    });
    if (chosen) { context.fillStyle = "rgb(100 150 255 / .2)"; context.fillRect((chosen[0] - from) * scale, 0, (chosen[1] - chosen[0]) * scale, canvas.height); }
  };
  const at = event => from + (event.offsetX / canvas.clientWidth) * (to - from);
  const sum = () => {
    const found = new Map();
    for (const lane of lanes) for (let n = 0; n < lane.slices.length; n += 3) {
      const length = Math.min(lane.slices[n + 2], chosen[1]) - Math.max(lane.slices[n + 1], chosen[0]);
      if (length > 0) { const name = state.plan.ops[lane.slices[n]].name; found.set(name, (found.get(name) ?? 0) + length); }
    }
    const rows = [...found].sort((a, b) => b[1] - a[1]);
    list.replaceChildren(element("h2", `Selected ${time(chosen[1] - chosen[0])}`), virtualList(rows, [row => row[0], row => time(row[1])], "minmax(0,1fr) 90px", row => filtered(row[0])()));
  };
  canvas.addEventListener("wheel", event => { event.preventDefault(); const middle = at(event), factor = event.deltaY > 0 ? 1.25 : 0.8; from = Math.max(0, middle - (middle - from) * factor); to = Math.min(wall, middle + (to - middle) * factor); draw(); });
  canvas.addEventListener("pointerdown", event => { start = at(event); canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", event => { if (start !== null) { const now = at(event); chosen = [Math.min(start, now), Math.max(start, now)]; draw(); } });
  canvas.addEventListener("pointerup", () => { start = null; if (chosen && chosen[1] > chosen[0]) sum(); });
  canvas.addEventListener("dblclick", () => { from = 0; to = wall; chosen = null; list.replaceChildren(); draw(); });
  draw();
}]);
state.views.push(["memory", "Memory", main => {
  const plan = state.plan, steps = Math.max(1, plan.ops.length);
  const held = plan.buffers.filter(one => one.role === "intermediate"), canvas = element("canvas");
  const note = element("p", "Each box is a buffer: across, the steps it is alive; down, its place in its memory.", { class: "quiet" });
  main.append(element("h2", `${held.length} intermediate buffers, ${bytes(plan.memory.planned_bytes)}`), canvas, note);
  const starts = new Map(), ends = new Map();
  for (const one of held) ends.set(one.storage, Math.max(ends.get(one.storage) ?? 0, one.offset + one.bytes));
  let total = 0;
  for (const [storage, size] of ends) { starts.set(storage, total); total += size; }
  const [context, width] = sized(canvas, 320), across = width / steps, down = 320 / Math.max(1, total);
  const boxes = held.map(one => [one.first * across, (starts.get(one.storage) + one.offset) * down, Math.max(1, (one.last - one.first + 1) * across), Math.max(1, one.bytes * down), one]);
  for (const [x, y, w, h, one] of boxes) { context.fillStyle = color(String(one.writes[0]), 0.7); context.fillRect(x, y, Math.max(0.5, w - 0.5), Math.max(0.5, h - 0.5)); }
  const under = event => boxes.findLast(([x, y, w, h]) => event.offsetX >= x && event.offsetX <= x + w && event.offsetY >= y && event.offsetY <= y + h)?.[4];
  const writer = one => plan.ops.find(op => op.step === one.writes[0]);
  canvas.addEventListener("pointermove", event => { const one = under(event); if (one) note.textContent = `${bytes(one.bytes)} ${one.dtype}, steps ${one.first} to ${one.last}, written by ${writer(one)?.name}`; });
  canvas.addEventListener("click", event => { const one = under(event); if (one) opened(writer(one)); });
  const rows = [...plan.buffers].sort((a, b) => b.bytes - a.bytes);
  main.append(element("h2", "All buffers"), virtualList(rows, [one => one.name || one.role, one => one.role, one => one.dtype, one => `${one.first} to ${one.last}`, one => bytes(one.bytes)], "minmax(0,1fr) 110px 80px 100px 90px", one => { const op = writer(one); if (op) opened(op); }));
}]);
state.views.push(["compare", "Compare", main => {
  const [now, before] = state.data.plans;
  if (!before) { main.append(element("p", "Give another plan as before= to see both side by side.", { class: "quiet" })); return; }
  const rows = new Map();
  for (const [place, plan] of [[1, now], [0, before]]) for (const op of plan.ops) {
    const row = rows.get(op.name) ?? { name: op.name, calls: [0, 0], ns: [0, 0] };
    row.calls[place]++; row.ns[place] += op.ns ?? 0;
    rows.set(op.name, row);
  }
  const word = row => !row.calls[0] ? "added" : !row.calls[1] ? "removed" : row.calls[0] === row.calls[1] ? "" : "other calls";
  main.append(facts([["calls before and after", `${before.ops.length} → ${now.ops.length}`], ["time", `${time(before.timeline.wall)} → ${time(now.timeline.wall)}`], ["intermediates", `${bytes(before.memory.planned_bytes)} → ${bytes(now.memory.planned_bytes)}`]]),
    element("h2", "Kernels"), virtualList([...rows.values()].sort((a, b) => Math.abs(b.ns[1] - b.ns[0]) - Math.abs(a.ns[1] - a.ns[0])),
      [row => row.name, word, row => `${row.calls[0]} → ${row.calls[1]}`, row => `${time(row.ns[0])} → ${time(row.ns[1])}`], "minmax(0,1fr) 90px 90px 170px", row => filtered(row.name)()));
}]);
function show() {
  const [view, ...rest] = (location.hash.slice(1) || "overview").split("/"), main = document.getElementById("view");
  main.replaceChildren();
  const links = state.views.map(([name, title], number) => element("a", title, { href: `#${name}`, class: name === view ? "here" : "", title: `key ${number + 1}` }));
  document.getElementById("views").replaceChildren(...links);
  if (view === "kernel") showKernel(main, Number(rest[0]), Number(rest[1]));
  else (state.views.find(([name]) => name === view) ?? state.views[0])[2](main);
}
async function begin() {
  const held = document.getElementById("data");
  state.from = held.dataset.from;
  if (state.from) state.data = await (await fetch(state.from)).json();
  else {
    const packed = Uint8Array.from(atob(held.textContent), letter => letter.charCodeAt(0));
    state.data = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
  }
  state.plan = state.data.plans[0];
  document.getElementById("name").textContent = state.plan.title;
  const search = document.getElementById("search");
  search.addEventListener("input", () => { state.search = search.value.toLowerCase(); if (location.hash !== "#timeline") { history.replaceState(null, "", "#kernels"); } show(); search.focus(); });
  window.addEventListener("hashchange", show);
  window.addEventListener("keydown", event => {
    if (event.target === search) { if (event.key === "Escape") search.blur(); return; }
    if (event.key === "/") { search.focus(); event.preventDefault(); }
    else if (event.key === "Escape") history.back();
    else if (state.views[Number(event.key) - 1]) goto(state.views[Number(event.key) - 1][0]);
  });
  show();
  document.body.dataset.ready = "yes";
}
begin();
