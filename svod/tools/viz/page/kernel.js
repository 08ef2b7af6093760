// One kernel: where it is from, why its result is stored, its roofline, loops, passes and code.
async function detailsOf(number) {
  const kernel = state.plan.kernels[number];
  if (!kernel.details && state.from) kernel.details = await (await fetch(`kernel/${state.plan.id}/${number}`)).json();
  return kernel.details;
}
const withoutNumbers = line => line.replace(/%\d+/g, "%");
// Lines of two texts: kept (0), new (1) and gone (-1), by the shortest way from one to the other.
function differences(before, after, most = 1200) {
  const a = before.map(withoutNumbers), b = after.map(withoutNumbers), trace = [];
  let best = new Map([[1, 0]]);
  for (let d = 0; d <= Math.min(most, a.length + b.length); d++) {
    trace.push(new Map(best));
    for (let k = -d; k <= d; k += 2) {
      let x = k === -d || (k !== d && (best.get(k - 1) ?? -1) < (best.get(k + 1) ?? -1)) ? best.get(k + 1) ?? 0 : (best.get(k - 1) ?? 0) + 1, y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) { x++; y++; }
      best.set(k, x);
      if (x >= a.length && y >= b.length) return backwards(trace, before, after);
    }
  }
  return [...before.map(line => [-1, line]), ...after.map(line => [1, line])];
}
function backwards(trace, before, after) {
  const found = [];
  let x = before.length, y = after.length;
  for (let d = trace.length - 1; d >= 0; d--) {
    const best = trace[d], k = x - y, previous = k === -d || (k !== d && (best.get(k - 1) ?? -1) < (best.get(k + 1) ?? -1)) ? k + 1 : k - 1;
    const px = best.get(previous) ?? 0, py = px - previous;
    while (x > px && y > py && x > 0 && y > 0) { x--; y--; found.push([0, after[y]]); }
    if (d > 0) { if (x > px) { x--; found.push([-1, before[x]]); } else if (y > py) { y--; found.push([1, after[y]]); } }
  }
  return found.reverse();
}
function passText(text, before, showsGone) {
  const found = element("pre");
  if (before == null) { found.textContent = text || "not known"; return found; }
  for (const [kind, line] of differences(before.split("\n"), text.split("\n"))) {
    if (kind < 0 && !showsGone) continue;
    found.append(kind ? element("span", line, { class: kind > 0 ? "new" : "gone" }) : line, "\n");
  }
  return found;
}
// Measured FLOP/s over FLOP per byte, below what the machine can do; all kernels faint, this one marked.
function rooflineChart(number) {
  const plan = state.plan, roof = plan.roofline, spent = new Map();
  for (const op of plan.ops) if (op.ns && op.kernel != null) { const row = spent.get(op.kernel) ?? [0, 0]; row[0] += op.ns; row[1]++; spent.set(op.kernel, row); }
  const dots = [...spent].map(([kernel, [ns, calls]]) => { const one = plan.kernels[kernel]; return { kernel, ns, x: one.flops / one.bytes, y: one.flops * calls / ns, name: one.name }; }).filter(dot => dot.x > 0 && dot.y > 0 && Number.isFinite(dot.x));
  if (!roof || !dots.length) return null;
  const canvas = element("canvas", "", { class: "roof" }), ridge = roof.gflops / roof.gbs;
  const low = 10 ** Math.floor(Math.log10(Math.min(ridge / 30, ...dots.map(dot => dot.x)))), high = 10 ** Math.ceil(Math.log10(Math.max(ridge * 10, ...dots.map(dot => dot.x))));
  const bottom = 10 ** Math.floor(Math.log10(Math.min(roof.gflops / 1000, ...dots.map(dot => dot.y)))), top = roof.gflops * 2;
  let place = () => [0, 0];
  const draw = () => {
    const [context, width] = sized(canvas, 240), left = 54, right = width - 12, floor = 206, ceiling = 10;
    const x = value => left + (right - left) * Math.log(value / low) / Math.log(high / low), y = value => floor - (floor - ceiling) * Math.log(value / bottom) / Math.log(top / bottom);
    place = dot => [x(dot.x), y(dot.y)];
    context.font = `11px ${FONT}`;
    context.fillStyle = theme("quiet");
    context.strokeStyle = theme("line");
    context.textAlign = "center";
    const label = value => value >= 1 ? counted(value) : String(Number(value.toPrecision(1)));
    for (let at = low; at <= high * 1.01; at *= 10) { context.beginPath(); context.moveTo(x(at), ceiling); context.lineTo(x(at), floor); context.stroke(); context.fillText(label(at), x(at), floor + 14); }
    context.fillText("FLOP per byte", (left + right) / 2, floor + 29);
    context.textAlign = "right";
    for (let at = bottom; at <= top; at *= 10) { context.beginPath(); context.moveTo(left, y(at)); context.lineTo(right, y(at)); context.stroke(); context.fillText(label(at), left - 6, y(at) + 4); }
    context.textAlign = "left";
    context.fillText("GFLOP/s", left + 6, ceiling + 8);
    context.strokeStyle = theme("ink");
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x(low), y(Math.max(bottom, low * roof.gbs)));
    if (low * roof.gbs < bottom) context.moveTo(x(bottom / roof.gbs), y(bottom));
    context.lineTo(x(ridge), y(roof.gflops));
    context.lineTo(x(high), y(roof.gflops));
    context.stroke();
    for (const dot of dots) { context.beginPath(); context.arc(x(dot.x), y(dot.y), dot.kernel === number ? 6 : 3, 0, 7); context.fillStyle = dot.kernel === number ? theme("mark") : theme("edge"); context.fill(); }
    const mine = dots.find(dot => dot.kernel === number);
    if (mine) { context.beginPath(); context.arc(x(mine.x), y(mine.y), 6, 0, 7); context.fillStyle = theme("mark"); context.fill(); }
  };
  const near = event => { let found = null, least = 10; for (const dot of dots) { const [px, py] = place(dot), away = Math.hypot(px - event.offsetX, py - event.offsetY); if (away < least) { least = away; found = dot; } } return found; };
  canvas.addEventListener("pointermove", event => { const dot = near(event); canvas.style.cursor = dot ? "pointer" : ""; note(event, dot && [dot.name, `${dot.y.toFixed(1)} GFLOP/s, ${(dot.y / dot.x).toFixed(1)} GB/s, ${time(dot.ns)}`]); });
  canvas.addEventListener("pointerleave", () => note(null, null));
  canvas.addEventListener("click", event => { const dot = near(event); if (dot) goto(`kernel/${dot.kernel}/${plan.ops.findIndex(op => op.kernel === dot.kernel)}`); });
  painted(canvas, draw);
  return element("section", "", {}, element("h2", "Roofline"), canvas, element("p", `measured on this machine: ${roof.gflops.toFixed(0)} GFLOP/s, ${roof.gbs.toFixed(1)} GB/s from memory; what is in caches may be above the slope`, { class: "quiet" }));
}
async function kernelView(main, first, second) {
  const number = Number(first), kernel = state.plan.kernels[number], given = state.plan.ops[second], op = given?.kernel === number ? given : state.plan.ops.find(one => one.kernel === number);
  if (!kernel || !op) { main.append(empty("There is no such kernel.")); return; }
  const roof = state.plan.roofline, seconds = op.ns, origin = originOf(op);
  const pairs = [["calls", counted(kernel.calls)], ["time of this call", time(seconds)], ["work", flop(kernel.flops)], ["bytes read and written", bytes(kernel.bytes)]];
  if (seconds && kernel.flops != null && roof) pairs.push(["GFLOP/s", `${(kernel.flops / seconds).toFixed(1)} · ${share(kernel.flops / seconds / roof.gflops)}`], ["GB/s", `${(kernel.bytes / seconds).toFixed(1)} · ${share(kernel.bytes / seconds / roof.gbs)}`]);
  if (kernel.launch.length) pairs.push([kernel.launch.length > 1 && kernel.launch[1].some(n => n > 1) ? "blocks of threads" : "parts for threads", kernel.launch.map(size => size.filter((n, place) => n > 1 || !place).join("×")).filter((text, place) => !place || text !== "1").join(" of ")]);
  for (const [name, value] of Object.entries(kernel.hardware ?? {})) pairs.push([name, String(value)]);
  main.append(element("h2", kernel.name), facts(pairs));
  const columns = element("div", "", { class: "columns" }), about = element("section"), chart = rooflineChart(number);
  about.append(...placeOf(origin, op.origin), linksOf(op), reasonBox(op.reason), ...buffersOf(op));
  if (kernel.calls > 1) about.append(element("p", "", {}, link(`All ${kernel.calls} calls of this kernel`, `kernels/kernel/${number}`)));
  columns.append(about);
  if (chart) columns.append(chart);
  const tabs = element("div", "", { class: "tabs", role: "tablist" }), pane = element("div"), gone = element("input", "", { type: "checkbox", id: "gone" }), mark = element("label", "", { class: "quiet", for: "gone" }, gone, " show lines that are gone");
  main.append(columns, tabs, pane);
  const inside = (op.inside ?? []).map(([node, reason]) => element("div", "", {}, element("code", kernel.nodes[node]?.text ?? ""), reasonBox(reason)));
  const details = await detailsOf(number);
  if (!tabs.isConnected) return;
  const texts = [];
  if (details?.problem) main.insertBefore(element("p", details.problem, { class: "quiet" }), tabs);
  if (details?.loops || kernel.opts.length) texts.push(["Loops", () => element("pre", [details?.by ?? kernel.by ? `chosen by ${details?.by ?? kernel.by}: ${(details?.opts ?? kernel.opts).join(", ") || "plain loops"}` : "", details?.plain ?? "", "", details?.loops ?? ""].filter((text, place) => text || place === 2).join("\n").trimStart())]);
  if (inside.length) texts.push([`Fused values (${inside.length})`, () => element("div", "", { class: "kept" }, ...inside)]);
  for (const [place, step] of (details?.passes ?? []).entries()) texts.push([step.name, () => element("div", "", {}, element("p", step.why, { class: "quiet" }), passText(step.text, place ? details.passes[place - 1].text : null, gone.checked)), place > 0]);
  if (!details?.passes?.length && kernel.nodes.length) texts.push(["Body", () => element("pre", kernel.nodes.map(node => node.text).join("\n"))]);
  if (details?.llvm) texts.push(["LLVM IR", () => element("pre", details.llvm)]);
  if (details?.asm) texts.push(["Assembly", () => element("pre", details.asm)]);
  if (!texts.length) { pane.append(empty("The plan holds machine code alone: a plan that was loaded has no graphs.")); return; }
  let current = null;
  for (const [name, make, isPass] of texts) {
    const button = element("button", name, { role: "tab" });
    button.addEventListener("click", () => {
      current = button;
      state.tab = name;
      for (const other of tabs.children) { other.classList.toggle("here", other === button); other.setAttribute("aria-selected", other === button); }
      pane.replaceChildren(...(isPass ? [mark] : []), make());
    });
    tabs.append(button);
  }
  gone.addEventListener("change", () => current?.click());
  tabs.addEventListener("keydown", event => { const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key]; if (step) { const all = [...tabs.children], next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length]; next.focus(); next.click(); event.preventDefault(); } });
  ([...tabs.children].find(button => button.textContent === state.tab) ?? tabs.children[0]).click();
}
