"""A small service: one compiled model, many threads, requests of several lengths."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.EmbeddingBag(30, 12, mode="mean")
            self.hidden = nn.Linear(12, 16)
            self.out = nn.Linear(16, 3)

        def forward(self, ids):
            return self.out(F.relu(self.hidden(self.embed(ids)))).softmax(-1)

    model = env.settle(Classifier()).eval()

    def predict(ids):
        with torch.no_grad():
            return model(ids)

    predict = env.compile(predict)
    requests = [env.random.integers(0, 30, (1, 4 + i % 3)) for i in range(24)]

    def answer(request):
        found = predict(torch.from_numpy(request).to(env.device))
        return found[0].cpu().numpy()

    alone = np.stack([answer(r) for r in requests])
    with ThreadPoolExecutor(6) as pool:
        together = np.stack(list(pool.map(answer, requests * 2)))
    assert np.array_equal(together, np.concatenate([alone, alone]))

    batch = torch.from_numpy(np.concatenate([r for r in requests if r.shape[1] == 5]))
    best = predict(batch.to(env.device)).max(dim=-1)
    return {"answers": alone, "best": best.values, "class": best.indices}
