"""A UNet: skips, transposed convolutions, dice and pixel losses, IoU at the end."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F

    def twice(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.GroupNorm(2, outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.GroupNorm(2, outputs),
            nn.ReLU(inplace=True),
        )

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.bottom = twice(1, 4), twice(4, 8), twice(8, 12)
            self.up2 = nn.ConvTranspose2d(12, 8, 2, stride=2)
            self.join2 = twice(16, 8)
            self.up1 = nn.ConvTranspose2d(8, 4, 2, stride=2)
            self.join1 = twice(8, 4)
            self.out = nn.Conv2d(4, 1, 1)

        def forward(self, x):
            a = self.first(x)
            b = self.second(F.max_pool2d(a, 2))
            c = self.bottom(F.max_pool2d(b, 2))
            b = self.join2(torch.cat([self.up2(c), b], dim=1))
            a = self.join1(torch.cat([self.up1(b), a], dim=1))
            return self.out(a)

    def dice(logits, target):
        p = torch.sigmoid(logits)
        top = 2 * (p * target).sum((1, 2, 3)) + 1
        return (1 - top / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)).mean()

    model = env.settle(UNet())
    optimizer = env.optim.Adam(model.parameters(), lr=5e-3)

    def step(x, y):
        optimizer.zero_grad()
        logits = model(x)
        loss = F.binary_cross_entropy_with_logits(logits, y) + dice(logits, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = []
    for _ in range(env.steps(4)):
        x = env.tensor(2, 1, 16, 16)
        y = (F.avg_pool2d(x, 3, stride=1, padding=1) > 0).float()
        losses.append(step(x, y).item())
    model.eval()
    with torch.no_grad():
        x = env.tensor(2, 1, 16, 16)
        mask = model(x) > 0
        truth = F.avg_pool2d(x, 3, stride=1, padding=1) > 0
        overlap = (mask & truth).sum() / (mask | truth).sum()
    return {"losses": losses, "overlap": overlap, "area": mask.sum()}
