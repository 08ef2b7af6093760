"""The first program people write: a line fitted by hand, tensors that require gradients."""

from __future__ import annotations


def journey(env):
    torch = env.torch
    x = torch.linspace(-1, 1, 50, device=env.device)
    y = 3 * x + 0.5 + 0.1 * env.tensor(50)

    w = torch.zeros(1, device=env.device, requires_grad=True)
    b = torch.zeros(1, device=env.device, requires_grad=True)
    history = []
    for epoch in range(env.steps(15)):
        predicted = w * x + b
        loss = ((predicted - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            w -= 0.5 * w.grad
            b -= 0.5 * b.grad
        w.grad.zero_()
        b.grad = None
        history.append(loss.item())
        if epoch % 5 == 0:
            text = f"epoch {epoch:2d} loss {loss:.4f} w {w.item():.3f}"
            assert "lazy" not in text

    def step(w, b):
        loss = ((w * x + b - y) ** 2).mean()
        gw, gb = torch.autograd.grad(loss, (w, b))
        return w - 0.5 * gw, b - 0.5 * gb, loss

    step = env.compile(step)
    w2 = torch.zeros(1, device=env.device, requires_grad=True)
    b2 = torch.zeros(1, device=env.device, requires_grad=True)
    for _ in range(env.steps(5)):
        w2, b2, loss = step(w2, b2)
        w2, b2 = w2.detach().requires_grad_(), b2.detach().requires_grad_()
        history.append(float(loss))

    design = torch.stack([x, torch.ones_like(x)], dim=1)
    solved = torch.linalg.lstsq(design, y[:, None]).solution.squeeze(1)
    residual = y - design @ solved
    return {
        "history": history,
        "w": w,
        "b": b,
        "w2": w2,
        "solved": solved,
        "residual": residual.norm(),
        "r2": 1 - residual.var() / y.var(),
    }
