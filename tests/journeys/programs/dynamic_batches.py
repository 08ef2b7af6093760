"""Batches of every size through one model: padded sequences, packed ones, masks by length."""

from __future__ import annotations

import numpy as np


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    rnn = nn.utils.rnn

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 8, padding_idx=0)
            self.rnn = nn.GRU(8, 10, batch_first=True)
            self.head = nn.Linear(10, 4)

        def forward(self, ids, lengths):
            packed = rnn.pack_padded_sequence(
                self.embed(ids), lengths, batch_first=True, enforce_sorted=False
            )
            out, last = self.rnn(packed)
            out, _ = rnn.pad_packed_sequence(out, batch_first=True)
            return self.head(out), last

    model = env.settle(Tagger())
    optimizer = env.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for i in range(env.steps(4)):
        sizes = [3 + (i + j) % 4 for j in range(3 + i % 2)]
        rows = [torch.from_numpy(env.random.integers(1, 20, n)).to(env.device) for n in sizes]
        ids = rnn.pad_sequence(rows, batch_first=True)
        tags = (ids % 4).masked_fill(ids == 0, -100)
        optimizer.zero_grad()
        logits, last = model(ids, torch.tensor(sizes))
        loss = F.cross_entropy(logits.flatten(0, 1), tags[:, : logits.shape[1]].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    def pooled(ids, mask):
        embedded = model.embed(ids) * mask.unsqueeze(-1)
        return embedded.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)

    pooled = env.compile(pooled)
    means = []
    for n in (2, 5, 5, 1):
        ids = torch.from_numpy(np.arange(1, 1 + 2 * n).reshape(2, n) % 20).to(env.device)
        means.append(pooled(ids, (ids % 3 != 0).float()).sum().item())
    assert model.embed.weight[0].abs().sum().item() > 0
    return {"losses": losses, "last": last, "means": means}
