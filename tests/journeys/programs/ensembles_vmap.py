"""Many small models at once: stacked parameters, vmap, functional calls, per-sample gradients."""

from __future__ import annotations


def journey(env):
    torch, F = env.torch, env.F
    func = torch.func

    def predict(parameters, x):
        h = torch.tanh(x @ parameters["w1"] + parameters["b1"])
        return (h @ parameters["w2"]).squeeze(-1)

    stacked = {
        "w1": env.tensor(5, 3, 8) * 0.5,
        "b1": env.tensor(5, 8) * 0.1,
        "w2": env.tensor(5, 8, 1) * 0.5,
    }
    x = env.tensor(12, 3)
    y = torch.sin(x.sum(1))
    every = func.vmap(predict, in_dims=(0, None))(stacked, x)
    one = predict({k: v[2] for k, v in stacked.items()}, x)
    assert torch.allclose(every[2], one, atol=1e-5)

    def loss(parameters, x, y):
        return F.mse_loss(predict(parameters, x), y)

    gradient = func.vmap(func.grad(loss), in_dims=(0, None, None))

    def step(w1, b1, w2, x, y):
        parameters = {"w1": w1, "b1": b1, "w2": w2}
        g = gradient(parameters, x, y)
        return tuple(parameters[k] - 0.1 * g[k] for k in ("w1", "b1", "w2"))

    step = env.compile(step)
    losses = []
    for _ in range(env.steps(5)):
        made = step(stacked["w1"], stacked["b1"], stacked["w2"], x, y)
        stacked = dict(zip(("w1", "b1", "w2"), made, strict=True))
        errors = (func.vmap(predict, in_dims=(0, None))(stacked, x) - y) ** 2
        losses.append(errors.mean(1).tolist())

    first = {k: v[0] for k, v in stacked.items()}
    per_sample = func.vmap(func.grad(loss), in_dims=(None, 0, 0))(first, x[:, None], y[:, None])
    norms = per_sample["w1"].flatten(1).norm(dim=1)
    value, slope = func.jvp(lambda v: predict(first, v), (x,), (torch.ones_like(x),))
    return {
        "losses": losses,
        "spread": every.std(0),
        "norms": norms,
        "value": value,
        "slope": slope,
    }
