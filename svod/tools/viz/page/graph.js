// The graph view: a canvas with groups that fold and unfold, and a panel about what is chosen.
const PAD = 14, HEAD = 26, SIZES = { group: [190, 48], call: [210, 48], port: [140, 40], op: [128, 38], param: [150, 38] };
const trees = new Map(); // by plan and kind: what is unfolded stays so
function graphView(main, kind = "modules", focus) {
  const plan = state.plan, byModule = kind !== "calls", key = `${state.data.plans.indexOf(plan)}/${kind}`;
  if (!plan.ops.length) { main.append(empty("The plan has no calls.")); return; }
  if (!trees.has(key)) trees.set(key, treeOf(plan, byModule));
  const tree = trees.get(key), canvas = element("canvas", "", { tabindex: "0", role: "application", "aria-label": "graph: arrows choose, Enter folds and unfolds, + and − zoom, F shows all" });
  const panel = element("aside", "", { "aria-live": "polite" }), wrap = element("div", "", { class: "graph" });
  const button = (text, title, act) => { const found = element("button", text, { title }); found.addEventListener("click", act); return found; };
  const hint = element("span", "drag moves, wheel zooms, double click folds", { class: "quiet hint" });
  main.append(element("div", "", { class: "bar" },
    element("div", "", { class: "switch" }, link("Modules and ops", "graph/modules", { class: byModule ? "here" : "" }), link("Kernels", "graph/calls", { class: byModule ? "" : "here" })),
    button("Fit", "show all (F)", () => fit()), button("Unfold", "unfold one level", () => unfold()), button("Fold", "fold all", () => foldAll()), hint), wrap);
  wrap.append(canvas, panel);
  main.classList.add("fills");
  let visible = [], edges = [], chosen = null, view = tree.view ?? null, hover = null;
  const isShown = box => visible.includes(box);
  // -- which boxes there are, and edges between them
  function arrange() {
    visible = [];
    edges = [];
    const rep = new Map(), collect = box => {
      visible.push(box);
      if (box.open) { box.pairs = new Map(); childrenOf(box).forEach(collect); if (box.kind === "call") rep.set(box, box); return; }
      for (const leaf of box.leaves?.length ? box.leaves : [box]) rep.set(leaf, box);
    };
    collect(tree.root);
    const found = new Map(), add = (from, to, place) => {
      let row = found.get(from);
      if (!row) found.set(from, row = new Map());
      const edge = row.get(to) ?? { from, to, count: 0, places: new Set() };
      edge.count++;
      if (place != null) edge.places.add(place);
      row.set(to, edge);
    };
    for (const { from, to, place } of tree.edges) {
      let a = rep.get(from), b = rep.get(to);
      if (!a || !b || a === b) continue;
      if (a.kind === "call" && a.open) a = a.lastValue ?? a;
      if (b.kind === "call" && b.open) { const inside = b.byPlace.get(place); b = inside && childrenOf(b).includes(inside) ? inside : b; }
      add(a, b, place);
    }
    for (const box of visible) if (box.kind === "call" && box.open) for (const one of childrenOf(box)) for (const before of one.before) if (childrenOf(box).includes(before)) add(before, one, null);
    for (const row of found.values()) for (const edge of row.values()) {
      const above = new Map();
      for (let box = edge.from, below = null; box; below = box, box = box.parent) above.set(box, below);
      let box = edge.to, below = null;
      while (box && !above.has(box)) { below = box; box = box.parent; }
      const side = above.get(box);
      edges.push(edge);
      if (!side || !below || !box.pairs) continue;
      const name = box.pairs.get(side) ?? box.pairs.set(side, new Map()).get(side);
      if (!name.has(below)) name.set(below, [side, below]);
      edge.group = box;
      edge.pair = name.get(below);
    }
    sizesOf(tree.root);
    const settle = (box, x, y) => {
      box.left = x;
      box.top = y;
      if (box.open) for (const one of childrenOf(box)) settle(one, x + PAD + one.x, y + HEAD + PAD / 2 + one.y);
    };
    settle(tree.root, 0, 0);
  }
  function sizesOf(box) {
    if (!box.open) { [box.width, box.height] = SIZES[box.kind]; return; }
    const inside = childrenOf(box);
    inside.forEach(sizesOf);
    const pairs = [...box.pairs.values()].flatMap(row => [...row.values()]), found = layered(inside, pairs);
    box.width = Math.max(SIZES.group[0], found.width + 2 * PAD);
    box.height = found.height + HEAD + 1.5 * PAD;
    box.points = found.points;
    box.far = found.far;
    const spare = (box.width - 2 * PAD - found.width) / 2;
    if (spare > 0) for (const one of inside) one.x += spare;
    box.spare = Math.max(0, spare);
  }
  // -- drawing
  const nsOf = box => box.ns ??= box.op ? (box.kind === "op" || box.kind === "param" ? 0 : box.op.ns ?? 0) : [...new Set((box.leaves ?? []).map(leaf => leaf.op).filter(Boolean))].reduce((sum, op) => sum + (op.ns ?? 0) / (byModule ? leavesOfOp.get(op) ?? 1 : 1) * (byModule ? countOf(box, op) : 1), 0);
  const leavesOfOp = new Map();
  for (const leaf of tree.leaves) if (leaf.op) leavesOfOp.set(leaf.op, (leavesOfOp.get(leaf.op) ?? 0) + 1);
  const countOf = (box, op) => { box.counts ??= box.leaves.reduce((found, leaf) => found.set(leaf.op, (found.get(leaf.op) ?? 0) + 1), new Map()); return box.counts.get(op) ?? 0; };
  const callsOf = box => box.calls ??= new Set((box.leaves ?? [box]).map(leaf => leaf.op).filter(Boolean)).size;
  const titleOf = box => box.isChunk ? `${byModule ? "part" : "calls"} ${box.name}` : box.parts > 1 ? `${box.name} (${box.part} of ${box.parts})` : box.name;
  const belowOf = box => {
    if (box.kind === "group" && callsOf(box)) return `${counted(callsOf(box))} call${callsOf(box) === 1 ? "" : "s"}${nsOf(box) ? ` · ${time(nsOf(box))}` : ""}`;
    if (box.kind === "call") return [box.op.ns == null ? "" : time(box.op.ns), originOf(box.op)?.module || placeText(originOf(box.op))].filter(Boolean).join(" · ");
    return box.type ?? "";
  };
  const reasonOf = box => {
    if (box.kind === "call") return box.op.reason ?? null;
    if (box.kind !== "op") return null;
    const kept = (box.op.inside ?? []).find(([node]) => node === box.node)?.[1];
    const last = state.plan.kernels[box.op.kernel].nodes.length - 1;
    return kept ?? (box.node === last ? box.op.reason ?? null : null);
  };
  const isMatch = box => !state.search || (box.kind === "group" ? box.name.toLowerCase().includes(state.search) || box.leaves.some(leaf => leaf.op && matches(leaf.op)) : box.op ? matches(box.op) || box.name.toLowerCase().includes(state.search) : box.name.toLowerCase().includes(state.search));
  const draw = () => {
    const height = wrap.clientHeight, [context, width] = sized(canvas, height);
    if (!view) fitView(width, height);
    const { x, y, k } = view, ink = theme("ink"), quiet = theme("quiet"), line = theme("line"), mark = theme("mark"), ground = theme("ground"), panelColor = theme("panel");
    context.translate(x, y);
    context.scale(k, k);
    const x0 = -x / k, y0 = -y / k, x1 = x0 + width / k, y1 = y0 + height / k;
    const isSeen = box => box.left < x1 && box.left + box.width > x0 && box.top < y1 && box.top + box.height > y0;
    context.textBaseline = "middle";
    const paint = (box, isBack) => {
      if (!isSeen(box)) return;
      if (isBack !== Boolean(box.open)) { if (box.open) { heading(box); childrenOf(box).forEach(one => paint(one, isBack)); } return; }
      const faint = !isMatch(box), isOpen = box.open;
      context.globalAlpha = faint && !isOpen ? 0.25 : 1;
      context.beginPath();
      context.roundRect(box.left, box.top, box.width, box.height, box.kind === "port" || box.kind === "param" ? 12 : 7);
      const hue = color(box.kind === "group" ? box.name : box.kind === "call" ? box.op.name : box.kind === "port" || box.kind === "param" ? "buffer" : box.name, 1);
      context.fillStyle = isOpen ? (box.parent ? theme("shade") : ground) : panelColor;
      context.fill();
      context.lineWidth = box === chosen ? 2.5 : 1;
      context.strokeStyle = box === chosen ? mark : box === hover ? quiet : line;
      if (box.parent || box === chosen) context.stroke();
      if (!isOpen && box.kind !== "port" && box.kind !== "param") {
        context.save();
        context.clip();
        context.fillStyle = hue;
        context.fillRect(box.left, box.top, 5, box.height);
        const part = nsOf(box) / (plan.spent || 1);
        if (part > 0.001) { context.fillStyle = theme("heat"); context.fillRect(box.left + 5, box.top + box.height - 4, (box.width - 5) * Math.min(1, part), 4); }
        context.restore();
      }
      if (!isOpen) heading(box);
      context.globalAlpha = 1;
      if (isOpen) childrenOf(box).forEach(one => paint(one, isBack));
    };
    const heading = box => {
      const isOpen = box.open;
      if (k > 0.3 && box.parent) {
        const stored = reasonOf(box), hasDot = Boolean(stored) && !isOpen, sign = canOpen(box) ? (isOpen ? "▾ " : "▸ ") : "";
        context.fillStyle = ink;
        context.font = `${box.kind === "op" ? "" : "600 "}12px ${FONT}`;
        const room = box.width - 22 - (hasDot ? 12 : 0);
        context.fillText(fitText(context, sign + titleOf(box), room), box.left + 13, box.top + (isOpen ? HEAD / 2 + 3 : box.height / 2 - (belowOf(box) ? 8 : 0)));
        if (!isOpen) { context.fillStyle = quiet; context.font = `11px ${FONT}`; context.fillText(fitText(context, belowOf(box), box.width - 22), box.left + 13, box.top + box.height / 2 + 8); }
        else if (belowOf(box)) { const used = context.measureText(sign + titleOf(box)).width; context.fillStyle = quiet; context.font = `11px ${FONT}`; context.fillText(fitText(context, belowOf(box), Math.max(0, box.width - 40 - used)), box.left + 22 + used, box.top + HEAD / 2 + 3); }
        if (hasDot) { context.beginPath(); context.arc(box.left + box.width - 12, box.top + 12, 4, 0, 7); context.lineWidth = 1.5; context.strokeStyle = context.fillStyle = stored[1] ? theme("stored") : theme("fused"); if (stored[1]) context.fill(); else context.stroke(); }
      }
    };
    paint(tree.root, true);
    for (const pass of [0, 1]) for (const edge of edges) {
      const isNear = chosen && (edge.from === chosen || edge.to === chosen);
      if (Boolean(isNear) !== Boolean(pass)) continue;
      const a = edge.from, b = edge.to, from = [a.left + a.width / 2, a.top + a.height], to = [b.left + b.width / 2, b.top], group = edge.group;
      const middle = (group?.points?.get(edge.pair) ?? []).map(([px, py]) => [group.left + PAD + px + group.spare, group.top + HEAD + PAD / 2 + py]);
      const all = [from, ...middle, to];
      if (Math.max(...all.map(p => p[0])) < x0 || Math.min(...all.map(p => p[0])) > x1 || Math.max(...all.map(p => p[1])) < y0 || Math.min(...all.map(p => p[1])) > y1) continue;
      context.strokeStyle = context.fillStyle = isNear ? mark : theme("edge");
      if (group?.far?.has(edge.pair) && !isNear) { // two short ends; all of it where one of them is chosen
        for (const [px, py, by] of [[...from, 9], [...to, -9]]) { context.beginPath(); context.moveTo(px, py); context.lineTo(px, py + by); context.lineWidth = 1; context.stroke(); }
        continue;
      }
      context.beginPath();
      context.moveTo(...from);
      for (let at = 1; at < all.length; at++) { const [px, py] = all[at - 1], [qx, qy] = all[at], bend = Math.max(10, Math.abs(qy - py) / 2); context.bezierCurveTo(px, py + bend, qx, qy - bend, qx, qy); }
      context.lineWidth = isNear ? 2 : edge.count > 1 ? 1.6 : 1;
      context.stroke();
      context.beginPath();
      context.moveTo(to[0], to[1]);
      context.lineTo(to[0] - 4, to[1] - 7);
      context.lineTo(to[0] + 4, to[1] - 7);
      context.fill();
    }
    paint(tree.root, false);
  };
  const repaint = painted(canvas, draw);
  // -- moving about
  function fitView(width, height) {
    const room = Math.min(width / (tree.root.width + 24), height / (tree.root.height + 24)), k = Math.max(0.5, Math.min(1.1, room)), first = childrenOf(tree.root).reduce((top, box) => box.top < top.top ? box : top, childrenOf(tree.root)[0]);
    const x = tree.root.width * k < width ? (width - tree.root.width * k) / 2 : width / 2 - (first.left + first.width / 2) * k;
    view = tree.view = { k, x, y: Math.max(12, (height - tree.root.height * k) / 2) };
  }
  const fit = () => { const room = Math.min(canvas.clientWidth / (tree.root.width + 24), wrap.clientHeight / (tree.root.height + 24)); const k = Math.max(0.02, Math.min(1.1, room)); Object.assign(view, { k, x: (canvas.clientWidth - tree.root.width * k) / 2, y: Math.max(12, (wrap.clientHeight - tree.root.height * k) / 2) }); repaint(); };
  const zoom = (factor, px = canvas.clientWidth / 2, py = wrap.clientHeight / 2) => {
    const k = Math.max(0.02, Math.min(3, view.k * factor));
    view.x = px - (px - view.x) * k / view.k;
    view.y = py - (py - view.y) * k / view.k;
    view.k = k;
    repaint();
  };
  const center = box => { view.k = Math.max(view.k, 0.7); view.x = canvas.clientWidth / 2 - (box.left + box.width / 2) * view.k; view.y = Math.min(wrap.clientHeight / 3 - box.top * view.k, wrap.clientHeight / 3 - box.top * view.k); repaint(); };
  const reveal = box => { const px = (box.left + box.width / 2) * view.k + view.x, py = (box.top + Math.min(box.height, 60) / 2) * view.k + view.y; if (px < 20 || py < 20 || px > canvas.clientWidth - 20 || py > wrap.clientHeight - 20 || view.k < 0.35) center(box); else repaint(); };
  const toggle = box => {
    if (!canOpen(box) || box === tree.root) return;
    const before = [box.left, box.top];
    box.open = !box.open;
    arrange();
    if (chosen && !isShown(chosen)) choose(box);
    if (view) { view.x += (before[0] - box.left) * view.k; view.y += (before[1] - box.top) * view.k; }
    repaint();
  };
  const unfold = () => { for (const box of visible.filter(one => !one.open && one.kind === "group").slice(0, 60)) box.open = true; arrange(); view = null; repaint(); };
  const foldAll = () => { for (const box of visible) if (box.parent) box.open = false; chosen = null; arrange(); view = null; choose(null); };
  // -- what is chosen
  function choose(box) {
    chosen = box;
    tree.chosen = box;
    panel.replaceChildren(...aboutBox(box, { tree, byModule, edges, nsOf, callsOf, reasonOf, titleOf, choose: one => { choose(one); reveal(one); } }));
    panel.scrollTop = 0;
    repaint();
  }
  const at = event => {
    const px = (event.offsetX - view.x) / view.k, py = (event.offsetY - view.y) / view.k;
    const find = box => {
      if (px < box.left || py < box.top || px > box.left + box.width || py > box.top + box.height) return null;
      if (box.open) for (const one of childrenOf(box)) { const inside = find(one); if (inside) return inside; }
      return box;
    };
    const found = find(tree.root);
    return found === tree.root ? null : found;
  };
  let drag = null;
  canvas.addEventListener("pointerdown", event => { drag = { x: event.offsetX, y: event.offsetY, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", event => {
    if (drag) {
      if (drag.moved || Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) > 4) { view.x += event.offsetX - drag.x; view.y += event.offsetY - drag.y; drag = { x: event.offsetX, y: event.offsetY, moved: true }; repaint(); }
      return;
    }
    const box = view && at(event);
    if (box !== hover) { hover = box; canvas.style.cursor = box ? "pointer" : "grab"; repaint(); }
    note(event, box && (view.k < 0.6 || box.kind === "op") ? [titleOf(box), belowOf(box), reasonText(reasonOf(box))].filter(Boolean) : null);
  });
  canvas.addEventListener("pointerleave", () => { note(null, null); hover = null; });
  canvas.addEventListener("pointerup", event => {
    const moved = drag?.moved;
    drag = null;
    if (moved) return;
    const box = at(event), onSign = box && canOpen(box) && event.offsetX < (box.left + 26) * view.k + view.x && event.offsetY < (box.top + (box.open ? HEAD + 4 : box.height)) * view.k + view.y;
    if (onSign) { choose(box); toggle(box); } else choose(box);
  });
  canvas.addEventListener("dblclick", event => { const box = at(event); if (box) toggle(box); });
  canvas.addEventListener("wheel", event => { event.preventDefault(); if (event.ctrlKey || !event.shiftKey) zoom(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY); else { view.x -= event.deltaY; repaint(); } }, { passive: false });
  canvas.addEventListener("keydown", event => {
    const inside = visible.filter(box => box.parent), act = { "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), f: fit, F: fit, Enter: () => chosen && toggle(chosen), " ": () => chosen && toggle(chosen) }[event.key];
    const step = { ArrowDown: 1, ArrowUp: -1, ArrowRight: 2, ArrowLeft: -2 }[event.key];
    if (!act && !step) return;
    event.preventDefault();
    if (act) { act(); return; }
    const closed = inside.filter(box => !box.open);
    if (!chosen) { choose(closed[0] ?? null); if (chosen) reveal(chosen); return; }
    const middle = box => [box.left + box.width / 2, box.top + Math.min(box.height, 40) / 2], [cx, cy] = middle(chosen);
    const linked = step === 1 ? edges.filter(edge => edge.from === chosen).map(edge => edge.to) : step === -1 ? edges.filter(edge => edge.to === chosen).map(edge => edge.from) : [];
    const away = box => { const [bx, by] = middle(box), dx = bx - cx, dy = by - cy; const along = step === 1 ? dy : step === -1 ? -dy : step === 2 ? dx : -dx, beside = Math.abs(step) === 1 ? Math.abs(dx) : Math.abs(dy); return along > 4 ? along + 2.5 * beside : Infinity; };
    const next = (linked.length ? linked : closed.filter(box => box !== chosen && away(box) < Infinity)).sort((a, b) => away(a) - away(b))[0];
    if (next) { choose(next); reveal(next); }
  });
  arrange();
  // A call that an address names: everything around it is unfolded.
  const wanted = focus == null ? null : tree.leaves.findLast(leaf => leaf.op?.index === Number(focus));
  if (wanted) {
    const open = box => {
      if (box === wanted) return true;
      if (box.kind !== "group" || !box.leaves.includes(wanted)) return false;
      box.open = true;
      return childrenOf(box).some(open);
    };
    open(tree.root);
    arrange();
    requestAnimationFrame(() => { if (!view) fitView(canvas.clientWidth, wrap.clientHeight); center(wanted); });
  }
  choose(wanted ?? (tree.chosen && isShown(tree.chosen) ? tree.chosen : null));
  requestAnimationFrame(() => canvas.focus({ preventScroll: true }));
  state.graph = { tree, shown: () => { if (!view) fitView(canvas.clientWidth, wrap.clientHeight); return visible.filter(box => box.parent).map(box => ({ name: titleOf(box), kind: box.kind, open: Boolean(box.open), x: (box.left + box.width / 2) * view.k + view.x, y: (box.top + (box.open ? HEAD / 2 : box.height / 2)) * view.k + view.y })); }, chosen: () => chosen && titleOf(chosen), search: () => { const found = tree.leaves.find(leaf => leaf.op && isMatch(leaf)); repaint(); return found; } };
}
// What the panel says of a box: where it is from, why it is stored, what it reads and who reads it.
function aboutBox(box, { tree, byModule, edges, nsOf, callsOf, reasonOf, titleOf, choose }) {
  const plan = state.plan;
  if (!box) return [element("h2", plan.title), element("p", byModule ? "Modules hold the ops of their forward and of its gradient. Unfold one to see inside." : "Each box is a call of a kernel; unfold one to see the values that it computes without storing them.", { class: "quiet" }),
    element("ul", "", { class: "key" }, element("li", "", {}, element("i", "", { class: "dot stored" }), "stored: its result goes to memory"), element("li", "", {}, element("i", "", { class: "dot fused" }), "computed at each use, though it could be stored"), element("li", "", {}, element("i", "", { class: "dot heat" }), "share of the time of a run"))];
  const found = [element("h2", titleOf(box))], op = box.op;
  if (box.kind === "group") {
    found.push(facts([["calls", counted(callsOf(box))], ["time", time(nsOf(box) || null)], ["of the run", nsOf(box) ? share(nsOf(box) / plan.spent) : "–"], [byModule ? "ops" : "kernels", counted(box.leaves.length)]]));
    const path = [];
    for (let one = box; one?.parent; one = one.parent) if (!one.isChunk) path.unshift(one.name);
    if (byModule && path.length && plan.origins.some(origin => origin.module && pathParts(origin.module).slice(0, path.length).join("\n") === path.join("\n"))) found.push(element("p", "", {}, link("Calls of this module", `kernels/module/${encodeURIComponent(path.join("\n"))}`)));
    const calls = [...new Set(box.leaves.map(leaf => leaf.op).filter(Boolean))].sort((a, b) => (b.ns ?? 0) - (a.ns ?? 0)).slice(0, 8);
    if (calls.length) found.push(element("h3", "Longest calls"), element("ul", "", {}, ...calls.map(one => element("li", "", {}, link(one.name, kernelAddress(one)), element("span", ` ${time(one.ns)}`, { class: "quiet" })))));
  } else if (op) {
    const origin = box.origin == null ? originOf(op) : plan.origins[box.origin];
    if (box.type) found.push(element("p", box.type, { class: "quiet" }));
    if (box.kind === "op" || box.kind === "param") found.push(element("p", "", {}, "in ", link(op.name, kernelAddress(op))));
    if (box.kind === "call") found.push(facts([["time", time(op.ns)], ["of the run", op.ns ? share(op.ns / plan.spent) : "–"], ["step", String(op.step)], ["work", flop(plan.kernels[op.kernel]?.flops)]]));
    const reason = reasonOf(box);
    if (reason) found.push(reasonBox(reason));
    found.push(...placeOf(origin, box.origin ?? op.origin), linksOf(op));
    if (box.kind === "call") found.push(...buffersOf(op));
  } else if (box.place != null) {
    const one = plan.buffers[box.place];
    found.push(element("p", `${one.role}, ${one.dtype}${one.shape.length ? ` [${one.shape}]` : ""}, ${bytes(one.bytes)}`), element("p", "", {}, link("Memory", `memory/${box.place}`), " · ", link("Calls that use it", `kernels/buffer/${box.place}`)));
  }
  const near = (title, list) => list.length && found.push(element("h3", title), element("ul", "", {}, ...list.slice(0, 12).map(one => {
    const item = element("a", titleOf(one), { href: location.hash || "#", role: "button" });
    item.addEventListener("click", event => { event.preventDefault(); choose(one); });
    return element("li", "", {}, item);
  }), ...(list.length > 12 ? [element("li", `and ${list.length - 12} more`, { class: "quiet" })] : [])));
  near("Needs", edges.filter(edge => edge.to === box).map(edge => edge.from));
  near("Is needed by", edges.filter(edge => edge.from === box).map(edge => edge.to));
  return found;
}
const placeOf = (origin, number) => origin ? [element("p", "", { class: "place" }, link(placeText(origin), `kernels/line/${number}`, { title: `all calls of ${origin.file}:${origin.line}` }), origin.module ? element("span", `  ${origin.module}`, { class: "quiet" }) : ""), ...(origin.text ? [element("pre", origin.text, { class: "code" })] : [])] : [];
const linksOf = op => element("p", "", { class: "links" }, ...[op.kernel == null ? null : link("Kernel", kernelAddress(op)), op.origin == null ? null : link("Line", `kernels/line/${op.origin}`), state.plan.timeline.wall ? link("Timeline", `timeline/${op.index}`) : null, op.writes.length ? link("Buffer", `memory/${op.writes[0]}`) : null, link("Graph", `graph/calls/${op.index}`)].filter(Boolean));
const buffersOf = op => {
  const row = (place, from) => element("li", "", {}, link(bufferName(place), `memory/${place}`), element("span", ` ${state.plan.buffers[place].dtype}, ${bytes(state.plan.buffers[place].bytes)}`, { class: "quiet" }), ...(from == null ? [] : [element("span", " from ", { class: "quiet" }), link(state.plan.ops[from].name, kernelAddress(state.plan.ops[from]))]));
  return [element("h3", "Writes"), element("ul", "", {}, ...op.writes.map(place => row(place, null))), ...(op.reads.length ? [element("h3", "Reads"), element("ul", "", {}, ...op.reads.slice(0, 20).map((place, number) => row(place, op.from[number])))] : [])];
};
