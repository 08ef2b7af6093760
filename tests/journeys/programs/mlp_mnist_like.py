"""The classifier of every tutorial: epochs, batches by slices, accuracy, a confusion matrix."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(64, 32)
            self.fc2 = nn.Linear(32, 10)

        def forward(self, x):
            x = x.view(x.size(0), -1)
            return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)

    model = env.settle(Net())
    optimizer = env.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    patterns = env.tensor(10, 8, 8)
    labels = env.integers(0, 10, (80,))
    images = patterns[labels] + 0.3 * env.tensor(80, 8, 8)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step = env.compile(step)
    losses, accuracy = [], []
    for _ in range(env.steps(3)):
        for i in range(0, 64, 16):
            losses.append(step(images[i : i + 16], labels[i : i + 16]).item())
        model.eval()
        with torch.no_grad():
            predicted = model(images[64:]).argmax(dim=1, keepdim=True)
            correct = predicted.eq(labels[64:].view_as(predicted)).sum().item()
        model.train()
        accuracy.append(100.0 * correct / 16)
    table = torch.zeros(10, 10, dtype=torch.int64)
    for truth, guess in zip(labels[64:].tolist(), predicted.flatten().tolist(), strict=True):
        table[truth, guess] += 1
    return {
        "losses": losses,
        "accuracy": accuracy,
        "diagonal": table.diagonal(),
        "sum": table.sum(),
    }
