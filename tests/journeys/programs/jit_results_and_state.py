"""Functions under jit as users write them: several results, dicts, constants, state."""

from __future__ import annotations


def journey(env):
    torch, F = env.torch, env.F
    w = env.tensor(5, 5)
    count = torch.zeros((), dtype=torch.int64, device=env.device)
    running = torch.zeros(5, device=env.device)

    def describe(x):
        y = x @ w
        return {"sum": y.sum(), "again": y.sum(), "x": x, "shape": x.reshape(-1), "one": x * 0 + 1}

    def track(x):
        count.add_(1)
        running.mul_(0.5).add_(0.5 * x.mean(0))
        return running.clone(), count.clone()

    def split(x, parts=2):
        return [part * i for i, part in enumerate(x.chunk(parts, dim=1))]

    def choose(x, flag):
        return F.relu(x) if flag else torch.sigmoid(x)

    def normal(x):
        mean, variance = x.mean(), x.var()
        return (x - mean) / variance.sqrt(), mean, variance

    describe, track = env.compile(describe), env.compile(track)
    split, choose, normal = env.compile(split), env.compile(choose), env.compile(normal)
    found = {"sums": [], "running": [], "parts": [], "chosen": [], "moments": []}
    for i in range(env.steps(4)):
        x = env.tensor(4, 5)
        d = describe(x)
        assert d["sum"].item() == d["again"].item()
        assert torch.allclose(d["x"], x) and d["shape"].shape == (20,)
        assert d["one"].sum().item() == 20
        found["sums"].append(d["sum"].item())
        mean, n = track(x)
        assert n.item() == i + 1
        found["running"].append(mean.tolist())
        found["parts"].append([p.sum().item() for p in split(x[:, :4], parts=2 + 2 * (i % 2))])
        found["chosen"].append(choose(x, i % 2 == 0).sum().item())
        scaled, mean, variance = normal(x)
        found["moments"].append([scaled.std().item(), mean.item(), variance.item()])
        if i == 1:
            w.copy_(torch.eye(5, device=env.device))
    found["parts"] = [sum(p) for p in found["parts"]]
    found["count"] = count
    found["state"] = running
    return found
