"""Training that stops, is saved, and goes on in a new model as if it had not stopped."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F

    def make():
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(8 * 4 * 4, 5),
        )
        optimizer = env.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
        schedule = env.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
        return model, optimizer, schedule

    model, optimizer, schedule = make()
    env.settle(model)
    x, y = env.tensor(12, 3, 8, 8), env.integers(0, 5, (12,))

    def train(model, optimizer, schedule, steps):
        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss, loss.detach()

        step = env.compile(step)
        losses = []
        for _ in range(env.steps(steps)):
            loss, same = step(x, y)
            assert loss.item() == same.item()
            losses.append(loss.item())
            schedule.step()
        return losses

    before = train(model, optimizer, schedule, 3)
    path = str(env.folder / "run.checkpoint")
    torch.save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "epoch": 3,
        },
        path,
    )
    going_on = train(model, optimizer, schedule, 3)

    other, its_optimizer, its_schedule = make()
    other.to(env.device)
    saved = torch.load(path) if env.is_svod else torch.load(path, weights_only=False)
    other.load_state_dict(saved["model"])
    its_optimizer.load_state_dict(saved["optimizer"])
    its_schedule.load_state_dict(saved["schedule"])
    resumed = train(other, its_optimizer, its_schedule, 3)
    assert max(abs(a - b) for a, b in zip(going_on, resumed, strict=True)) < 1e-5
    other.eval()
    with torch.no_grad():
        predicted = other(x).argmax(1)
    return {
        "losses": before + resumed,
        "epoch": saved["epoch"],
        "predicted": predicted,
        "running mean": other[1].running_mean,
    }
