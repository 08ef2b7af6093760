// The graph as a tree of groups: by module (ops inside modules) or by call (values inside kernels).
// A group never depends on itself through others: what would is a further part of the same module.
const MOST_SIBLINGS = 120, MOST_PORTS = 6;
const pathParts = path => path.startsWith("/") ? path.slice(1).split("/") : path.split(".");
const shortNode = node => {
  const found = /^(\w+) ?([^:]*?)(?: : (.*))?$/.exec(node.text) ?? [null, node.op, "", ""];
  const folded = /op=(\w+)/.exec(found[3] ?? "");
  return [folded ? `${found[1].replace("_AXIS", "")} ${folded[1]}` : found[1], found[2]];
};
// Leaves in an order in which every leaf comes after those it needs, with edges between them.
function leavesOf(plan, byModule) {
  const leaves = [], edges = [], made = new Map(), inputs = new Map();
  const many = role => plan.buffers.filter(one => one.role === role).length, folded = role => many(role) > MOST_PORTS ? [`${counted(many(role))} ${role}s`] : [];
  const ports = { input: folded("input"), output: folded("output") };
  const add = leaf => { leaf.number = leaves.length; leaf.ins = []; leaves.push(leaf); return leaf; };
  const connect = (from, to, place) => { if (from && from !== to) { edges.push({ from, to, place }); to.ins.push(from); } };
  const input = place => {
    const one = plan.buffers[place];
    if (one.role !== "input" || inputs.has(place)) return inputs.get(place);
    const found = add({ kind: "port", name: one.name || "input", type: `${one.dtype} ${bytes(one.bytes)}`, path: ports.input, place });
    inputs.set(place, found);
    return found;
  };
  for (const op of plan.bySteps) {
    const kernel = plan.kernels[op.kernel], callPath = modulePath(plan, op.origin);
    const sourceOf = place => made.get(place) ?? input(place);
    let last;
    if (!byModule || !kernel?.nodes.length) {
      last = add({ kind: "call", name: op.name, op, path: byModule ? callPath : [] });
      for (const place of new Set(op.reads)) connect(sourceOf(place), last, place);
    } else {
      const marks = new Map(op.marks ?? []), own = [];
      kernel.nodes.forEach((node, number) => {
        if (node.op === "PARAM") {
          const place = op.args?.[kernel.slots.indexOf(node.slot)];
          own.push(place == null ? null : { leaf: op.reads.includes(place) ? sourceOf(place) : null, place });
          return;
        }
        const [name, type] = shortNode(node), origin = marks.get(number) ?? op.origin;
        const leaf = add({ kind: "op", name, type, op, node: number, path: modulePath(plan, origin), origin });
        for (const source of node.src) if (own[source]?.leaf) connect(own[source].leaf, leaf, own[source].place);
        own.push({ leaf, place: null });
        last = leaf;
      });
      if (!last) {
        last = add({ kind: "call", name: op.name, op, path: callPath });
        for (const place of new Set(op.reads)) connect(sourceOf(place), last, place);
      }
    }
    for (const place of op.writes) made.set(place, last);
  }
  plan.buffers.forEach((one, place) => {
    if (one.role === "output" && made.has(place)) connect(made.get(place), add({ kind: "port", name: one.name || "output", type: `${one.dtype} ${bytes(one.bytes)}`, path: ports.output, place, isOutput: true }), place);
  });
  return { leaves, edges };
}
const modulePath = (plan, number) => {
  const origin = number == null ? null : plan.origins[number];
  return origin?.module ? pathParts(origin.module) : [origin ? placeText(origin) : "(no line)"];
};
const reaches = (from, target, limit = 3000) => {
  const waiting = [from], seen = new Set(waiting);
  while (waiting.length) {
    for (const before of waiting.pop().before) {
      if (before === target) return true;
      if (!seen.has(before)) { seen.add(before); waiting.push(before); }
    }
    if (seen.size > limit) return true; // perhaps: a further part is never wrong
  }
  return false;
};
function grouped(leaves, depth, parent) {
  const boxes = [], current = new Map(), parts = new Map(), boxOf = new Map();
  for (const leaf of leaves) {
    const key = leaf.path[depth], before = new Set(leaf.ins.map(one => boxOf.get(one)).filter(Boolean));
    let box = key === undefined ? null : current.get(key);
    if (box && [...before].some(one => one !== box && (one.before.has(box) || reaches(one, box)))) box = null;
    if (!box) {
      box = key === undefined ? leaf : { kind: "group", name: key, leaves: [], depth: depth + 1, part: (parts.get(key) ?? 0) + 1 };
      box.before = new Set();
      box.parent = parent;
      if (key !== undefined) { parts.set(key, box.part); current.set(key, box); }
      boxes.push(box);
    }
    if (box !== leaf) box.leaves.push(leaf);
    for (const one of before) if (one !== box) box.before.add(one);
    boxOf.set(leaf, box);
  }
  for (const box of boxes) if (box.kind === "group") box.parts = parts.get(box.name);
  return boxes.length > MOST_SIBLINGS ? chunked(inOrder(boxes), parent) : boxes;
}
// Boxes after those they need.
function inOrder(boxes) {
  const waits = new Map(), after = new Map(), ready = [], found = [];
  for (const box of boxes) {
    waits.set(box, box.before.size);
    for (const one of box.before) (after.get(one) ?? after.set(one, []).get(one)).push(box);
    if (!box.before.size) ready.push(box);
  }
  for (let at = 0; at < ready.length; at++) {
    found.push(ready[at]);
    for (const box of after.get(ready[at]) ?? []) { waits.set(box, waits.get(box) - 1); if (!waits.get(box)) ready.push(box); }
  }
  return found;
}
// Very many boxes as runs of them, which lie one after the other.
function chunked(boxes, parent) {
  const stepOf = box => box.op?.step ?? box.leaves?.find(leaf => leaf.op)?.op.step ?? 0;
  const sorted = boxes.map((box, place) => [stepOf(box), place, box]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(row => row[2]);
  const rank = new Map(sorted.map((box, place) => [box, place]));
  const isOrder = boxes.every(box => [...box.before].every(one => rank.get(one) < rank.get(box)));
  const list = isOrder ? sorted : boxes, size = Math.max(40, Math.ceil(list.length / MOST_SIBLINGS)), found = [], chunkOf = new Map();
  for (let at = 0; at < list.length; at += size) {
    const inside = list.slice(at, at + size), chunk = { kind: "group", name: `${counted(at + 1)} to ${counted(at + inside.length)}`, isChunk: true, children: inside, leaves: inside.flatMap(box => box.leaves ?? [box]), parent, before: new Set(), part: 1, parts: 1 };
    for (const box of inside) {
      chunkOf.set(box, chunk);
      for (const one of box.before) if (chunkOf.get(one) !== chunk) chunk.before.add(chunkOf.get(one));
      box.parent = chunk;
    }
    found.push(chunk);
  }
  return found;
}
const childrenOf = box => {
  if (!box.children) box.children = box.kind === "call" ? valuesOf(box) : grouped(box.leaves, box.depth, box);
  return box.children;
};
const canOpen = box => box.kind === "group" || (box.kind === "call" && Boolean(state.plan.kernels[box.op.kernel]?.nodes.length));
// The values inside a kernel, for a call that is unfolded.
function valuesOf(call) {
  const kernel = state.plan.kernels[call.op.kernel], found = [];
  const written = new Set(call.op.writes);
  kernel.nodes.forEach((node, number) => {
    const [name, type] = shortNode(node), place = node.op === "PARAM" ? call.op.args?.[kernel.slots.indexOf(node.slot)] : undefined;
    const isTarget = node.op === "PARAM" && written.has(place) && !call.op.reads.includes(place);
    const one = isTarget ? null : { kind: node.op === "PARAM" ? "param" : "op", name: place == null ? name : bufferName(place), type, op: call.op, node: number, place, parent: call, before: new Set(), leaves: [] };
    if (one) for (const source of node.src) if (found[source]) one.before.add(found[source]);
    found.push(one);
  });
  call.byPlace = new Map(found.filter(one => one?.kind === "param").map(one => [one.place, one]));
  call.lastValue = found.findLast(one => one && one.kind !== "param") ?? found.findLast(Boolean);
  return found.filter(one => one && (one.kind !== "param" || found.some(other => other?.before.has(one))));
}
// A tree for a plan: its root, and edges between its leaves.
function treeOf(plan, byModule) {
  const { leaves, edges } = leavesOf(plan, byModule), root = { kind: "group", name: plan.title, leaves, depth: 0, parent: null, open: true, before: new Set(), part: 1, parts: 1 };
  let only = root;
  while (only?.kind === "group") {
    only.open = true;
    const inside = childrenOf(only), groups = inside.filter(box => box.kind === "group");
    only = groups.length === 1 && inside.length <= 12 ? groups[0] : null;
  }
  const sizes = box => box.leaves?.reduce((sum, leaf) => sum + (leaf.kind === "op" || leaf.kind === "call" ? 1 : 0), 0) ?? 1;
  return { root, edges, leaves, sizes, byModule };
}
