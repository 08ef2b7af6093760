"""Gradients of several small batches add up to those of a large one; clipping by their norm."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    model = env.settle(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)))
    optimizer = env.optim.AdamW(model.parameters(), lr=1e-2)
    parts = 4

    def accumulate(x, y):
        loss = F.cross_entropy(model(x), y) / parts
        loss.backward()
        return loss.detach()

    def update():
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        return norm

    losses, norms = [], []
    for _ in range(env.steps(3)):
        x, y = env.tensor(16, 8), env.integers(0, 4, (16,))
        whole = F.cross_entropy(model(x), y)
        expected = torch.autograd.grad(whole, list(model.parameters()))
        total = 0.0
        for some, labels in zip(x.chunk(parts), y.chunk(parts), strict=True):
            total += accumulate(some, labels).item()
        for p, g in zip(model.parameters(), expected, strict=True):
            assert torch.allclose(p.grad, g, atol=1e-6)
        norms.append(float(update()))
        losses.append(total)

    def whole_step(x, y):
        optimizer.zero_grad()
        for some, labels in zip(x.chunk(parts), y.chunk(parts), strict=True):
            (F.cross_entropy(model(some), labels) / parts).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return norm

    whole_step = env.compile(whole_step)
    for _ in range(env.steps(3)):
        norms.append(whole_step(env.tensor(16, 8), env.integers(0, 4, (16,))).item())
    return {"losses": losses, "norms": norms, "bias": model[2].bias}
