"""A session in a notebook: cells that redefine things, print tensors, and go on from old values."""

from __future__ import annotations


def journey(env):
    torch = env.torch
    # cell 1
    x = env.tensor(4, 3)
    shown = f"{x}"
    assert "lazy" not in shown
    # cell 2: a mistake, and its repair
    try:
        x @ x
    except Exception as error:
        assert "4" in str(error) and "3" in str(error)
    y = x @ x.T
    # cell 3: in-place experiments on a copy
    z = y.clone()
    z[0] = 0
    z[:, 1] += 10
    z.fill_diagonal_(-1.0)
    z[z < -0.5] = 0.5
    # cell 4: the same name again
    y = y.softmax(-1)
    total = y.sum().item()
    # cell 5: a loop over rows, with views written through
    for i, row in enumerate(z):
        row.mul_(i + 1)
    first = z[0]
    first += 100
    z.view(-1)[5] = 7
    z.T[2] = torch.arange(4, device=env.device).float()

    # cell 6: a function, compiled, called with other shapes
    def normalise(v, dim=-1):
        return (v - v.mean(dim, keepdim=True)) / (v.std(dim, keepdim=True) + 1e-5)

    normalise = env.compile(normalise)
    parts = [normalise(z), normalise(z[:2]), normalise(z, dim=0), normalise(env.tensor(7))]
    # cell 7: plain Python over tensors
    rows = [[round(float(v), 3) for v in row] for row in z]
    best = max(range(4), key=lambda i: z[i].sum().item())
    text = ", ".join(f"{v:.2f}" for v in z[1])
    shape = "x".join(str(n) for n in z.shape)
    if (z > 50).any() and not (z > 1e6).any():
        shape += " large"
    return {
        "y": y,
        "z": z,
        "total": total,
        "parts": [p.sum().item() for p in parts],
        "last": parts[3],
        "rows": rows,
        "best": best,
        "text": text,
        "shape": shape,
    }
