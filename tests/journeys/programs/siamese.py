"""Two views of the same thing: a shared encoder, a contrastive loss, a momentum encoder."""

from __future__ import annotations

import copy


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    encoder = env.settle(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 8)))
    target = copy.deepcopy(encoder)
    target.requires_grad_(False)
    head = env.settle(nn.Linear(8, 8))
    optimizer = env.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1, momentum=0.9)

    def info_nce(a, b, temperature=0.2):
        a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
        logits = a @ b.T / temperature
        labels = torch.arange(len(a), device=a.device)
        return F.cross_entropy(logits, labels)

    def step(one, two):
        loss = info_nce(head(encoder(one)), target(two))
        loss = (loss + info_nce(head(encoder(two)), target(one))) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(encoder.parameters(), target.parameters(), strict=True):
                q.data.mul_(0.95).add_(0.05 * p.data)
        return loss.detach()

    step = env.compile(step)
    losses = []
    for _ in range(env.steps(6)):
        x = env.tensor(16, 10)
        losses.append(step(x + 0.1 * env.tensor(16, 10), x + 0.1 * env.tensor(16, 10)).item())
    with torch.no_grad():
        x = env.tensor(5, 10)
        similar = F.cosine_similarity(encoder(x), target(x))
        apart = F.pairwise_distance(encoder(x), target(x))
    triplet = F.triplet_margin_loss(encoder(x), encoder(x + 0.1), encoder(env.tensor(5, 10)))
    return {"losses": losses, "similar": similar, "apart": apart, "triplet": triplet}
