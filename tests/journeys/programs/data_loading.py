"""Datasets and loaders: a user's Dataset, workers, collate with padding, samplers, splits."""

from __future__ import annotations

import numpy as np

ROWS = np.random.default_rng(5).standard_normal((30, 4)).astype(np.float32)


def pad(batch):
    longest = max(len(row) for row, _ in batch)
    made = np.zeros((len(batch), longest), np.float32)
    for i, (row, _) in enumerate(batch):
        made[i, : len(row)] = row
    return made, np.array([label for _, label in batch])


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    from importlib import import_module

    data = import_module(f"{torch.__name__}.utils.data")

    class Rows(data.Dataset):
        def __len__(self):
            return len(ROWS)

        def __getitem__(self, index):
            row = ROWS[index]
            return {"x": row, "y": np.float32(row.sum()), "name": f"row {index}"}

    class Ragged(data.Dataset):
        def __len__(self):
            return 7

        def __getitem__(self, index):
            return np.arange(index + 1, dtype=np.float32), index % 2

    train = data.Subset(Rows(), range(24))
    test = data.Subset(Rows(), range(24, 30))
    model = env.settle(nn.Linear(4, 1))
    optimizer = env.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x).squeeze(1), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses, names = [], []
    for epoch in range(env.steps(3)):
        loader = data.DataLoader(train, batch_size=8, num_workers=2 if epoch == 0 else 0)
        for batch in loader:
            losses.append(step(batch["x"].to(env.device), batch["y"].to(env.device)).item())
            names += batch["name"][:1]
    with torch.no_grad():
        errors = [
            (model(b["x"].to(env.device)).squeeze(1) - b["y"].to(env.device)).abs().max().item()
            for b in data.DataLoader(test, batch_size=4)
        ]
    sums = [
        (float(x.sum()), x.shape[1], labels.tolist())
        for x, labels in data.DataLoader(Ragged(), batch_size=3, collate_fn=pad, drop_last=True)
    ]
    shuffled = [int(i) for b in data.DataLoader(list(range(9)), 4, shuffle=True) for i in b]
    assert sorted(shuffled) == list(range(9))
    return {
        "losses": losses,
        "errors": errors,
        "names": " ".join(names),
        "sums": [s[0] for s in sums],
        "widths": [s[1] for s in sums],
        "labels": [label for s in sums for label in s[2]],
        "length": len(data.DataLoader(train, batch_size=7)),
    }
