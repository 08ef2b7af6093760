"""Low-rank adapters: layers wrapped in place, only the adapters trained, then merged."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F

    class Adapter(nn.Module):
        def __init__(self, base, rank, scale=0.5):
            super().__init__()
            self.base, self.scale = base, scale
            for p in self.base.parameters():
                p.requires_grad = False
            self.a = nn.Parameter(torch.zeros(rank, base.in_features))
            self.b = nn.Parameter(torch.zeros(base.out_features, rank))

        def forward(self, x):
            return self.base(x) + self.scale * (x @ self.a.T @ self.b.T)

        @torch.no_grad()
        def merged(self):
            self.base.weight += self.scale * self.b @ self.a
            return self.base

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 16)
            self.blocks = nn.ModuleList([nn.Linear(16, 16) for _ in range(2)])
            self.last = nn.Linear(16, 3)

        def forward(self, x):
            x = torch.tanh(self.first(x))
            for block in self.blocks:
                x = x + torch.tanh(block(x))
            return self.last(x)

    model = Net()
    env.settle(model)
    for i, block in enumerate(model.blocks):
        model.blocks[i] = Adapter(block, 2)
    model.first.requires_grad_(False)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith((".a", ".b")):
                p.copy_(torch.from_numpy(env.array(*p.shape, scale=0.1)))
    model.to(env.device)
    optimizer = env.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = [
        step(env.tensor(12, 8), env.integers(0, 3, (12,))).item() for _ in range(env.steps(5))
    ]
    x = env.tensor(4, 8)
    before = model(x).detach()
    for i, block in enumerate(model.blocks):
        model.blocks[i] = block.merged()
    after = model(x).detach()
    assert torch.allclose(before, after, atol=1e-5)
    return {
        "losses": losses,
        "after": after,
        "names": ",".join(n for n, _ in model.named_parameters()),
    }
