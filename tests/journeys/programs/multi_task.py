"""Two heads and learned weights of their losses; one task's labels are missing in part."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU())
            self.heads = nn.ModuleDict({"kind": nn.Linear(16, 3), "size": nn.Linear(16, 1)})
            self.logs = nn.Parameter(torch.zeros(2))

        def forward(self, x):
            h = self.trunk(x)
            return {name: head(h) for name, head in self.heads.items()}

    model = env.settle(Both())
    with torch.no_grad():
        model.logs.zero_()
    optimizer = env.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x, kind, size, has_size):
        out = model(x)
        first = F.cross_entropy(out["kind"], kind)
        errors = (out["size"].squeeze(1) - size).pow(2)
        second = (errors * has_size).sum() / has_size.sum().clamp(min=1)
        parts = torch.stack([first, second])
        loss = (torch.exp(-model.logs) * parts + model.logs).sum()
        optimizer.zero_grad()
        loss.backward()
        norms = torch.stack([p.grad.norm() for p in model.trunk.parameters()])
        optimizer.step()
        return {"loss": loss.detach(), "parts": parts.detach(), "norms": norms}

    step = env.compile(step)
    losses, parts = [], []
    for _ in range(env.steps(5)):
        x = env.tensor(12, 8)
        has = (env.tensor(12) > 0).float()
        found = step(x, env.integers(0, 3, (12,)), x[:, 0] * 2, has)
        losses.append(found["loss"].item())
        parts.append(found["parts"].tolist())
    keys = ",".join(sorted(model.state_dict()))
    return {
        "losses": losses,
        "parts": parts,
        "logs": model.logs,
        "norms": found["norms"],
        "keys": keys,
    }
