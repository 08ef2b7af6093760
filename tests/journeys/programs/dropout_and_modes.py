"""Modes: dropout off in evaluation, batch norm statistics, freezing statistics, training again."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    model = env.settle(
        nn.Sequential(
            nn.Linear(6, 12, bias=False),
            nn.BatchNorm1d(12, momentum=0.3),
            nn.ReLU6(),
            nn.Dropout(0.0),
            nn.Linear(12, 2),
        )
    )
    optimizer = env.optim.SGD(model.parameters(), lr=0.05)
    x, y = env.tensor(10, 6), env.integers(0, 2, (10,))

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def predict(x):
        with torch.no_grad():
            return model(x)

    step, predict = env.compile(step), env.compile(predict)
    losses, scores = [], []
    for _ in range(env.steps(3)):
        model.train()
        losses.append(step(x, y).item())
        model.eval()
        scores.append(predict(x).sum().item())
    model.train()
    model[1].eval()
    frozen = model[1].running_mean.clone()
    losses.append(step(x, y).item())
    assert torch.allclose(model[1].running_mean, frozen)
    model.train()
    in_training = predict(x).sum().item()

    heavy = nn.Dropout(0.5).to(env.device)
    ones = torch.ones(50, 40, device=env.device)
    dropped = heavy(ones)
    share = (dropped == 0).float().mean().item()
    assert 0.4 < share < 0.6 and set(dropped.unique().tolist()) == {0.0, 2.0}
    heavy.eval()
    assert heavy(ones).sum().item() == 2000
    flags = "".join("t" if m.training else "e" for m in model.modules())
    return {
        "losses": losses,
        "scores": scores,
        "mean": model[1].running_mean,
        "variance": model[1].running_var,
        "in training": in_training,
        "flags": flags,
    }
