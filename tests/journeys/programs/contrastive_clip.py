"""CLIP in small: an image and a text encoder, a learned temperature, retrieval."""

from __future__ import annotations

import math


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F

    class Clip(nn.Module):
        def __init__(self):
            super().__init__()
            self.image = nn.Sequential(
                nn.Conv2d(1, 6, 3, stride=2), nn.GELU(), nn.Flatten(), nn.Linear(6 * 9, 8)
            )
            self.words = nn.Embedding(15, 8)
            self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.text = nn.Linear(8, 8, bias=False)
            self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

        def forward(self, images, ids):
            a = F.normalize(self.image(images), dim=-1)
            h = self.encoder(self.words(ids), src_key_padding_mask=ids == 0)
            mask = (ids != 0).unsqueeze(-1).float()
            b = F.normalize(self.text((h * mask).sum(1) / mask.sum(1)), dim=-1)
            return self.scale.exp().clamp(max=100) * a @ b.T

    model = env.settle(Clip())
    with torch.no_grad():
        model.scale.fill_(math.log(5.0))
    optimizer = env.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)

    def step(images, ids):
        optimizer.zero_grad()
        logits = model(images, ids)
        labels = torch.arange(len(images), device=images.device)
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.scale.clamp_(0, math.log(100))
        return loss.detach()

    step = env.compile(step)
    losses = []
    for _ in range(env.steps(4)):
        ids = env.integers(1, 15, (6, 5))
        ids[:2, 4] = 0
        losses.append(step(env.tensor(6, 1, 8, 8), ids).item())
    model.eval()
    with torch.no_grad():
        ids = env.integers(1, 15, (4, 5))
        scores = model(env.tensor(4, 1, 8, 8), ids)
        ranks = scores.argsort(dim=1, descending=True)
    return {"losses": losses, "scores": scores, "ranks": ranks, "scale": model.scale}
