"""Fine-tuning: a frozen body, a new head, two learning rates, then the last layer unfrozen."""

from __future__ import annotations


def journey(env):
    nn, F = env.nn, env.F
    body = nn.Sequential(
        nn.Linear(10, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16), nn.LayerNorm(16)
    )
    model = env.settle(nn.ModuleDict({"body": body, "head": nn.Linear(16, 3)}))
    for parameter in model["body"].parameters():
        parameter.requires_grad_(False)
    before = model["body"][3].weight.detach().clone()
    x, y = env.tensor(20, 10), env.integers(0, 3, (20,))

    def make_step(optimizer):
        def step(x, y):
            loss = F.cross_entropy(model["head"](model["body"](x)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return env.compile(step)

    trained = [p for p in model.parameters() if p.requires_grad]
    step = make_step(env.optim.Adam(trained, lr=1e-2))
    losses = [step(x, y).item() for _ in range(env.steps(3))]
    assert (model["body"][3].weight == before).all()
    assert all(p.grad is None for p in model["body"].parameters())

    for parameter in model["body"][3].parameters():
        parameter.requires_grad = True
    optimizer = env.optim.Adam(
        [
            {"params": model["head"].parameters(), "lr": 1e-2},
            {"params": model["body"][3].parameters(), "lr": 1e-3},
        ]
    )
    step = make_step(optimizer)
    losses += [step(x, y).item() for _ in range(env.steps(3))]
    moved = (model["body"][3].weight - before).abs().max()
    still = [n for n, p in model.named_parameters() if not p.requires_grad]
    return {"losses": losses, "moved": moved, "still": " ".join(still)}
