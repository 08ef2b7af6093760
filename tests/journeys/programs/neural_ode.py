"""A neural ODE: Runge-Kutta steps in a loop, gradients through all of them."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 16), nn.Softplus(), nn.Linear(16, 2))

        def forward(self, t, x):
            when = torch.full_like(x[..., :1], t)
            return self.net(torch.cat([x, when], -1))

    def integrate(field, x, steps, h):
        path = [x]
        for i in range(steps):
            t = i * h
            k1 = field(t, x)
            k2 = field(t + h / 2, x + h / 2 * k1)
            k3 = field(t + h / 2, x + h / 2 * k2)
            k4 = field(t + h, x + h * k3)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            path.append(x)
        return torch.stack(path, dim=1)

    field = env.settle(Field())
    optimizer = env.optim.Adamax(field.parameters(), lr=1e-2)
    matrix = torch.tensor([[-0.1, 1.0], [-1.0, -0.1]], device=env.device)

    def step(start):
        optimizer.zero_grad()
        wanted = integrate(lambda t, x: x @ matrix.T, start, 4, 0.2)
        found = integrate(field, start, 4, 0.2)
        loss = F.mse_loss(found, wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = [step(env.tensor(8, 2)).item() for _ in range(env.steps(4))]
    with torch.no_grad():
        path = integrate(field, env.tensor(1, 2), 6, 0.1)
    return {"losses": losses, "path": path}
