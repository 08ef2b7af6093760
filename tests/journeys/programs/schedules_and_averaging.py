"""Learning rates over time: warm-up, cycles, chains; weights averaged at the end."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    S = env.optim.lr_scheduler
    makers = {
        "step": lambda o: S.StepLR(o, 2, 0.5),
        "cosine": lambda o: S.CosineAnnealingLR(o, 6, eta_min=1e-4),
        "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 3),
        "linear": lambda o: S.LinearLR(o, 0.1, 1.0, 4),
        "cycle": lambda o: S.OneCycleLR(o, 0.3, total_steps=8),
        "polynomial": lambda o: S.PolynomialLR(o, 6, 2.0),
        "chain": lambda o: S.SequentialLR(
            o, [S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.8)], milestones=[2]
        ),
    }
    found = {}
    for name, make in makers.items():
        p = nn.Parameter(torch.zeros(2))
        optimizer = env.optim.SGD([p], lr=0.1)
        schedule = make(optimizer)
        rates = []
        for _ in range(8):
            p.grad = torch.ones(2)
            optimizer.step()
            rates.append(optimizer.param_groups[0]["lr"])
            schedule.step()
        found[name] = rates
        found[name + " value"] = p.detach()

    model = env.settle(nn.Linear(4, 2))
    optimizer = env.optim.Adam(model.parameters(), lr=0.05)
    warm = S.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / 4))
    average = {k: torch.zeros_like(v) for k, v in model.state_dict().items()}

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses, count = [], 0
    for i in range(env.steps(8)):
        x = env.tensor(10, 4)
        losses.append(step(x, x[:, :2] * 2).item())
        warm.step()
        if i >= 1:
            count += 1
            for k, v in model.state_dict().items():
                average[k] += (v - average[k]) / count
    found["losses"] = losses
    found["average"] = average["weight"]
    return found
