"""Forecasting with a GRU: windows of a series, a validation split, early stopping."""

from __future__ import annotations

import copy

import numpy as np


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    t = np.arange(120)
    series = np.sin(t / 5) + 0.1 * env.random.standard_normal(120)
    data = torch.from_numpy(series.astype(np.float32)).to(env.device)
    windows = data.unfold(0, 9, 1)
    x, y = windows[:, :8].unsqueeze(-1), windows[:, 8:]
    cut = int(0.8 * len(x))
    data_train = torch.utils.data.TensorDataset(x[:cut], y[:cut])

    class Forecast(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(1, 8, batch_first=True, bidirectional=True)
            self.out = nn.Linear(16, 1)

        def forward(self, x):
            states, _ = self.gru(x)
            return self.out(states[:, -1])

    model = env.settle(Forecast())
    optimizer = env.optim.NAdam(model.parameters(), lr=1e-2)
    schedule = env.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.huber_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    best, kept, waited, curve = float("inf"), None, 0, []
    for _ in range(env.steps(4)):
        for xs, ys in torch.utils.data.DataLoader(data_train, batch_size=32):
            step(xs.to(env.device), ys.to(env.device))
        with torch.no_grad():
            score = F.huber_loss(model(x[cut:]), y[cut:]).item()
        schedule.step(score)
        curve.append(score)
        if score < best:
            best, kept, waited = score, copy.deepcopy(model.state_dict()), 0
        else:
            waited += 1
            if waited > 2:
                break
    model.load_state_dict(kept)
    with torch.no_grad():
        again = F.huber_loss(model(x[cut:]), y[cut:]).item()
    assert abs(again - best) < 1e-6
    return {"curve": curve, "rate": optimizer.param_groups[0]["lr"], "again": again}
