"""Pieces of a detector: anchors, IoU, matching, box coding, focal loss, NMS by hand."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F

    def area(boxes):
        return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])

    def overlaps(a, b):
        low = torch.maximum(a[:, None, :2], b[None, :, :2])
        high = torch.minimum(a[:, None, 2:], b[None, :, 2:])
        inner = (high - low).clamp(min=0).prod(-1)
        return inner / (area(a)[:, None] + area(b)[None] - inner)

    at = torch.arange(4, device=env.device) * 4.0 + 2.0
    cy, cx = torch.meshgrid(at, at, indexing="ij")
    centres = torch.stack([cx.flatten(), cy.flatten()], -1)
    anchors = torch.cat([centres - 2.5, centres + 2.5], -1)
    corners = env.tensor(3, 2).abs() * 3 + 1
    truth = torch.cat([corners, corners + 4 + env.tensor(3, 2).abs()], -1)
    labels = env.integers(0, 2, (3,))

    quality = overlaps(anchors, truth)
    best, matched = quality.max(dim=1)
    positive = best > 0.3
    positive[quality.argmax(dim=0)] = True
    targets = torch.zeros(16, 2, device=env.device)
    targets[positive.nonzero().squeeze(1), labels[matched[positive]]] = 1.0

    model = env.settle(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6)))
    optimizer = env.optim.Adam(model.parameters(), lr=1e-2)

    def focal(logits, targets, gamma=2.0):
        p = torch.sigmoid(logits)
        chance = p * targets + (1 - p) * (1 - targets)
        loss = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return (loss * (1 - chance) ** gamma).sum()

    def step(anchors, targets, boxes, weights):
        out = model(anchors / 16)
        shift = (boxes - anchors) / 5
        loss = focal(out[:, :2], targets)
        loss = loss + (F.l1_loss(out[:, 2:], shift, reduction="none").sum(1) * weights).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = []
    for _ in range(env.steps(4)):
        losses.append(step(anchors, targets, truth[matched], positive.float()).item())

    with torch.no_grad():
        out = model(anchors / 16)
        scores = out[:, :2].sigmoid().amax(1)
        boxes = anchors + out[:, 2:] * 5
    order = scores.argsort(descending=True)
    kept = []
    while len(order) > 0 and len(kept) < 5:
        kept.append(int(order[0]))
        rest = overlaps(boxes[order[:1]], boxes[order[1:]])[0]
        order = order[1:][rest < 0.5]
    return {"losses": losses, "kept": kept, "positive": positive.sum(), "best": best.max()}
