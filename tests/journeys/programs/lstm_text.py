"""A character model with an LSTM: hidden state carried over truncated pieces, then sampled."""

from __future__ import annotations

import numpy as np

TEXT = "the quick brown fox jumps over the lazy dog and runs away from the slow bear " * 3


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    letters = sorted(set(TEXT))
    number = {c: i for i, c in enumerate(letters)}
    data = torch.from_numpy(np.array([number[c] for c in TEXT])).to(env.device)

    class Characters(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(len(letters), 12)
            self.lstm = nn.LSTM(12, 16, num_layers=2, batch_first=True)
            self.head = nn.Linear(16, len(letters))

        def forward(self, ids, state=None):
            out, state = self.lstm(self.embed(ids), state)
            return self.head(out), state

    model = env.settle(Characters())
    optimizer = env.optim.RMSprop(model.parameters(), lr=5e-3)

    def step(x, y, h, c):
        optimizer.zero_grad()
        logits, (h, c) = model(x, (h, c))
        loss = F.cross_entropy(logits.reshape(-1, len(letters)), y.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach(), h.detach(), c.detach()

    step = env.compile(step)
    h = torch.zeros(2, 2, 16, device=env.device)
    c = torch.zeros(2, 2, 16, device=env.device)
    losses = []
    for i in range(env.steps(5)):
        x = torch.stack([data[i * 10 : i * 10 + 10], data[100 + i * 10 : 110 + i * 10]])
        y = torch.stack([data[i * 10 + 1 : i * 10 + 11], data[101 + i * 10 : 111 + i * 10]])
        loss, h, c = step(x, y, h, c)
        losses.append(loss.item())

    model.eval()
    state, ids, text = None, data[:3].unsqueeze(0), ""
    with torch.no_grad():
        for _ in range(env.steps(5)):
            logits, state = model(ids, state)
            best = int(logits[0, -1].argmax())
            text += letters[best]
            ids = torch.tensor([[best]], device=env.device)
    return {"losses": losses, "h": h, "text": text}
