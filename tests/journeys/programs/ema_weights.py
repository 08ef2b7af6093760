"""Averaged weights: a deep copy of the model follows the trained one, buffers included."""

from __future__ import annotations

import copy


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    model = env.settle(
        nn.Sequential(nn.Linear(6, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 1))
    )
    average = copy.deepcopy(model)
    for p in average.parameters():
        p.requires_grad_(False)
    optimizer = env.optim.Adam(model.parameters(), lr=2e-2)

    @torch.no_grad()
    def follow(decay):
        for ours, theirs in zip(average.parameters(), model.parameters(), strict=True):
            ours.mul_(decay).add_(theirs, alpha=1 - decay)
        for ours, theirs in zip(average.buffers(), model.buffers(), strict=True):
            ours.copy_(theirs)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(model(x), y)
        loss.backward()
        optimizer.step()
        follow(0.9)
        return loss.detach()

    step = env.compile(step)
    true = env.tensor(6, 1)
    losses = []
    for _ in range(env.steps(6)):
        x = env.tensor(16, 6)
        losses.append(step(x, x @ true).item())
    x = env.tensor(5, 6)
    model.eval()
    average.eval()
    with torch.no_grad():
        found, smooth = model(x), average(x)
    norm = torch.sqrt(sum(p.pow(2).sum() for p in average.parameters()))
    return {"losses": losses, "model": found, "average": smooth, "norm": norm}
