// A layered layout: boxes in rows after those they need, few crossings, each near its neighbours.
// In: boxes with width and height, and pairs of them. Out: x and y of each, the points of edges over
// several rows, and the pairs that are so far apart that a line between them would only be in the way.
const GAP_ACROSS = 22, GAP_DOWN = 34, MOST_POINTS = 1500, FAR = 14;
function layered(boxes, pairs) {
  const after = new Map(boxes.map(box => [box, []])), before = new Map(boxes.map(box => [box, []]));
  for (const [from, to] of pairs) { after.get(from).push(to); before.get(to).push(from); }
  const row = rowsOf(boxes, before, after), nodes = boxes.map(box => ({ box, row: row.get(box), width: box.width, height: box.height, ups: [], downs: [] }));
  const nodeOf = new Map(nodes.map(node => [node.box, node])), points = new Map(), far = new Set();
  const join = (up, down) => { up.downs.push(down); down.ups.push(up); };
  let left = MOST_POINTS;
  for (const pair of pairs) {
    const from = nodeOf.get(pair[0]), to = nodeOf.get(pair[1]), span = to.row - from.row;
    if (span > FAR) far.add(pair);
    else if (span > 1 && span <= left) {
      let above = from;
      const chain = [];
      for (let at = from.row + 1; at < to.row; at++) { const point = { row: at, width: 6, height: 0, ups: [], downs: [] }; nodes.push(point); chain.push(point); join(above, point); above = point; left--; }
      join(above, to);
      points.set(pair, chain);
    } else join(from, to);
  }
  const rows = [];
  for (const node of nodes) (rows[node.row] ??= []).push(node);
  order(rows);
  across(rows);
  let top = 0;
  for (const one of rows) {
    const height = Math.max(...one.map(node => node.height));
    for (const node of one) node.y = top + (height - node.height) / 2;
    top += height + GAP_DOWN;
  }
  const most = Math.max(...nodes.map(node => node.x + node.width / 2)), least = Math.min(...nodes.map(node => node.x - node.width / 2));
  for (const node of nodes) if (node.box) { node.box.x = node.x - node.width / 2 - least; node.box.y = node.y; }
  return { width: most - least, height: top - GAP_DOWN, far, points: new Map([...points].map(([pair, chain]) => [pair, chain.map(node => [node.x - least, node.y])])) };
}
// The row of each box: one below the lowest it needs; what only gives is put right above its first user.
function rowsOf(boxes, before, after) {
  const row = new Map(), waits = new Map(boxes.map(box => [box, before.get(box).length])), ready = boxes.filter(box => !waits.get(box));
  for (let at = 0; at < ready.length; at++) {
    const box = ready[at];
    row.set(box, Math.max(-1, ...before.get(box).map(one => row.get(one))) + 1);
    for (const one of after.get(box)) { waits.set(one, waits.get(one) - 1); if (!waits.get(one)) ready.push(one); }
  }
  for (const box of boxes) if (!row.has(box)) row.set(box, 0);
  for (const box of [...ready].reverse()) if (!before.get(box).length && after.get(box).length) row.set(box, Math.min(...after.get(box).map(one => row.get(one))) - 1);
  return row;
}
function order(rows) {
  const place = () => rows.forEach(one => one.forEach((node, at) => { node.at = at; }));
  place();
  for (let turn = 0; turn < 8; turn++) {
    const down = turn % 2 === 0;
    for (let at = down ? 1 : rows.length - 2; down ? at < rows.length : at >= 0; at += down ? 1 : -1) {
      for (const node of rows[at]) {
        const near = down ? node.ups : node.downs;
        node.wish = near.length ? near.reduce((sum, one) => sum + one.at, 0) / near.length : node.at;
      }
      rows[at].sort((a, b) => a.wish - b.wish || a.at - b.at);
      rows[at].forEach((node, number) => { node.at = number; });
    }
  }
}
// Places in a row: as near to the neighbours as the order allows (least squares, by pooling).
function across(rows) {
  for (const node of rows.flat()) node.pull = node.ups.length && node.downs.length ? 6 : 1; // ways go straight through, ends stand beside
  for (const one of rows) { let x = 0; for (const node of one) { node.x = x + node.width / 2; x += node.width + GAP_ACROSS; } for (const node of one) node.x -= x / 2; }
  for (let turn = 0; turn < 10; turn++) {
    const down = turn % 2 === 0;
    for (let number = 0; number < rows.length; number++) {
      const one = rows[down ? number : rows.length - 1 - number], pools = [];
      let shift = 0, previous = null;
      for (const node of one) {
        if (previous) shift += (previous.width + node.width) / 2 + GAP_ACROSS;
        const near = turn < 8 ? (down ? node.ups : node.downs) : [...node.ups, ...node.downs], pull = near.reduce((sum, other) => sum + other.pull, 0), wish = pull ? near.reduce((sum, other) => sum + other.x * other.pull, 0) / pull : node.x;
        const weight = near.length ? node.pull : 0.05;
        pools.push({ sum: (wish - shift) * weight, weight, nodes: [[node, shift]] });
        while (pools.length > 1 && pools.at(-2).sum / pools.at(-2).weight > pools.at(-1).sum / pools.at(-1).weight) { const last = pools.pop(), into = pools.at(-1); into.sum += last.sum; into.weight += last.weight; into.nodes.push(...last.nodes); }
        previous = node;
      }
      for (const pool of pools) for (const [node, by] of pool.nodes) node.x = pool.sum / pool.weight + by;
    }
  }
}
