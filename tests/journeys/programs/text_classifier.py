"""Words to numbers by hand, convolutions over text, class weights, precision and recall."""

from __future__ import annotations

import numpy as np

GOOD = ["lovely", "warm", "bright", "happy", "great", "fine", "sunny"]
BAD = ["awful", "cold", "dark", "sad", "terrible", "poor", "rainy"]


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    vocabulary = {w: i + 1 for i, w in enumerate(GOOD + BAD + ["the", "day", "was"])}

    def sentence():
        label = int(env.random.integers(2))
        words = [str(env.random.choice(GOOD if label else BAD)) for _ in range(3)]
        return ["the", "day", "was", *words], label

    def encode(batch):
        ids = np.zeros((len(batch), 7), np.int64)
        for i, (words, _) in enumerate(batch):
            ids[i, : len(words)] = [vocabulary.get(w, 0) for w in words]
        labels = np.array([label for _, label in batch])
        return torch.from_numpy(ids).to(env.device), torch.from_numpy(labels).to(env.device)

    class TextCNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(len(vocabulary) + 1, 10, padding_idx=0)
            self.convolutions = nn.ModuleList([nn.Conv1d(10, 6, k) for k in (2, 3)])
            self.out = nn.Linear(12, 2)

        def forward(self, ids):
            x = self.embed(ids).transpose(1, 2)
            pooled = [F.relu(conv(x)).amax(dim=2) for conv in self.convolutions]
            return self.out(torch.cat(pooled, dim=1))

    model = env.settle(TextCNN())
    weights = torch.tensor([1.0, 1.5], device=env.device)
    criterion = nn.CrossEntropyLoss(weight=weights)
    optimizer = env.optim.Adam(model.parameters(), lr=1e-2)

    def step(ids, labels):
        optimizer.zero_grad()
        loss = criterion(model(ids), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = [step(*encode([sentence() for _ in range(12)])).item() for _ in range(env.steps(6))]
    model.eval()
    ids, labels = encode([sentence() for _ in range(20)])
    with torch.no_grad():
        predicted = model(ids).argmax(1)
    hits = ((predicted == 1) & (labels == 1)).sum()
    precision = hits / (predicted == 1).sum().clamp(min=1)
    recall = hits / (labels == 1).sum().clamp(min=1)
    return {
        "losses": losses,
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall + 1e-9),
        "words": " ".join(w for w, i in vocabulary.items() if i in ids[0].tolist()),
    }
