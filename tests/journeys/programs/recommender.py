"""Matrix factorisation with biases: embeddings, sampled negatives, ranking at the end."""

from __future__ import annotations

import numpy as np


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    users, items = 15, 20

    class Factors(nn.Module):
        def __init__(self):
            super().__init__()
            self.user, self.item = nn.Embedding(users, 6), nn.Embedding(items, 6)
            self.bias = nn.Embedding(items, 1)
            self.mean = nn.Parameter(torch.zeros(()))

        def forward(self, u, i):
            return (self.user(u) * self.item(i)).sum(-1) + self.bias(i).squeeze(-1) + self.mean

    model = Factors()
    nn.init.constant_(model.mean, 0.25)
    shapes = [tuple(p.shape) for p in model.parameters()]
    assert () in shapes
    model = env.settle(model)
    optimizer = env.optim.Adam(model.parameters(), lr=2e-2)
    schedule = env.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def step(u, good, bad):
        optimizer.zero_grad()
        loss = -F.logsigmoid(model(u, good) - model(u, bad)).mean()
        loss = loss + 1e-4 * (model.user(u) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = []
    for _ in range(env.steps(5)):
        u = env.integers(0, users, (32,))
        good = (u * 3 + env.integers(0, 3, (32,))) % items
        losses.append(step(u, good, env.integers(0, items, (32,))).item())
        schedule.step()
    with torch.no_grad():
        scores = model.user.weight @ model.item.weight.T + model.bias.weight.T
        seen = torch.zeros(users, items, dtype=torch.bool, device=env.device)
        seen[torch.arange(users), torch.arange(users) * 3 % items] = True
        ranked = scores.masked_fill(seen, float("-inf")).argsort(dim=1, descending=True)
        position = (ranked == 7).nonzero()[:, 1]
        gains = 1 / torch.log2(position.float() + 2)
    table = scores.cpu().numpy()
    return {
        "losses": losses,
        "gains": gains,
        "best": ranked[:, 0],
        "spread": np.percentile(table, [10, 90]),
        "rate": schedule.get_last_lr()[0],
    }
