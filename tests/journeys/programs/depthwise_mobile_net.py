"""Mobile blocks: depthwise convolutions, squeeze and excitation, inverted residuals."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F

    class Excite(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.down = nn.Conv2d(channels, channels // 4, 1)
            self.up = nn.Conv2d(channels // 4, channels, 1)

        def forward(self, x):
            s = x.mean((2, 3), keepdim=True)
            return x * F.hardsigmoid(self.up(F.relu(self.down(s))))

    class Inverted(nn.Module):
        def __init__(self, inputs, outputs, stride, grow=2):
            super().__init__()
            middle = inputs * grow
            self.residual = stride == 1 and inputs == outputs
            self.layers = nn.Sequential(
                nn.Conv2d(inputs, middle, 1, bias=False),
                nn.BatchNorm2d(middle),
                nn.Hardswish(),
                nn.Conv2d(middle, middle, 3, stride, 1, groups=middle, bias=False),
                nn.BatchNorm2d(middle),
                nn.Hardswish(),
                Excite(middle),
                nn.Conv2d(middle, outputs, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )

        def forward(self, x):
            y = self.layers(x)
            return x + y if self.residual else y

    model = env.settle(
        nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.Hardswish(),
            Inverted(8, 8, 1),
            Inverted(8, 12, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(12, 5),
        )
    )
    optimizer = env.optim.SGD(model.parameters(), lr=2e-2, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = [
        step(env.tensor(4, 3, 16, 16), env.integers(0, 5, (4,))).item() for _ in range(env.steps(3))
    ]
    model.eval()
    x = env.tensor(2, 3, 16, 16)
    with torch.no_grad():
        single = torch.cat([model(row[None]) for row in x])
        both = model(x)
    assert torch.allclose(single, both, atol=1e-4)
    return {"losses": losses, "both": both}
