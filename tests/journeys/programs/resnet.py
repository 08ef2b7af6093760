"""A small ResNet with strides and projections: SGD with momentum, label smoothing, accuracy."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.shortcut = nn.Sequential()
            if stride != 1 or inputs != outputs:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x):
            y = F.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            y += self.shortcut(x)
            return F.relu(y)

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
            self.layers = nn.Sequential(Block(8, 8, 1), Block(8, 12, 2), Block(12, 16, 2))
            self.head = nn.Linear(16, 4)

        def forward(self, x):
            x = self.layers(F.relu(self.stem(x)))
            x = F.adaptive_avg_pool2d(x, 1)
            return self.head(torch.flatten(x, 1))

    model = env.settle(ResNet())
    optimizer = env.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    schedule = env.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 4], gamma=0.5)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = []
    for _ in range(env.steps(5)):
        losses.append(step(env.tensor(6, 3, 12, 12), env.integers(0, 4, (6,))).item())
        schedule.step()
    model.eval()
    with torch.no_grad():
        x, y = env.tensor(8, 3, 12, 12), env.integers(0, 4, (8,))
        logits = model(x)
        correct = (logits.argmax(1) == y).sum().item()
    batches = model.layers[1].bn1.num_batches_tracked.item()
    return {"losses": losses, "logits": logits, "correct": correct, "batches": batches}
