"""A table of pandas: gaps filled, categories embedded, a model trained, results put back."""

from __future__ import annotations

import numpy as np

NEEDS = ("pandas",)


def journey(env):
    import pandas as pd

    torch, nn, F = env.torch, env.nn, env.F
    n = 30
    frame = pd.DataFrame({
        "age": np.where(np.arange(n) % 7 == 3, np.nan, 20.0 + np.arange(n) % 40),
        "income": np.abs(env.array(n)).astype(np.float64) * 1000,
        "city": [["oslo", "rome", "lima"][i % 3] for i in range(n)],
        "bought": (np.arange(n) % 4 == 1).astype(np.int64),
    })  # fmt: skip
    frame["age"] = frame["age"].fillna(frame["age"].mean())
    codes = frame["city"].astype("category").cat.codes.to_numpy().astype(np.int64)
    numbers = torch.tensor(frame[["age", "income"]].values, dtype=torch.float32, device=env.device)
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    city = torch.from_numpy(codes).to(env.device)
    label = torch.tensor(frame["bought"].to_numpy(), device=env.device)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.city = nn.Embedding(3, 2)
            self.out = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

        def forward(self, numbers, city):
            return self.out(torch.cat([numbers, self.city(city)], dim=1))

    model = env.settle(Model())
    optimizer = env.optim.Adam(model.parameters(), lr=0.05)

    def step(numbers, city, label):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(numbers, city), label)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = pd.Series([step(numbers, city, label).item() for _ in range(env.steps(6))])
    with torch.no_grad():
        chance = model(numbers, city).softmax(1)[:, 1].cpu().numpy()
    frame["chance"] = chance
    frame["z"] = [float(v) for v in numbers[:, 0]]
    by_city = frame.groupby("city")["chance"].mean()
    best = frame.sort_values("chance", ascending=False).head(3)
    year = torch.tensor([t.year for t in pd.date_range("2020-01-01", periods=3, freq="YS")])
    return {
        "losses": losses.to_numpy(),
        "mean": losses.mean(),
        "by city": by_city.to_numpy(),
        "names": ",".join(by_city.index),
        "best": best["income"].to_numpy() / 1000,
        "z": frame["z"].sum(),
        "kind": str(torch.tensor(frame["bought"].values).dtype).rpartition(".")[2],
        "years": year,
    }
