"""Classic methods without gradients: k-means, nearest neighbours, PCA, a confusion matrix."""

from __future__ import annotations


def journey(env):
    torch = env.torch
    centres = torch.tensor([[3.0, 0.0], [-3.0, 1.0], [0.0, -3.0]], device=env.device)
    labels = env.integers(0, 3, (60,))
    points = centres[labels] + 0.5 * env.tensor(60, 2)

    def assigned(points, means):
        return ((points[:, None] - means[None]) ** 2).sum(-1).argmin(dim=1)

    assigned = env.compile(assigned)
    means = points[:3].clone()
    for _ in range(env.steps(6)):
        nearest = assigned(points, means)
        for k in range(3):
            mine = points[nearest == k]
            if len(mine) > 0:
                means[k] = mine.mean(dim=0)
    spread = torch.stack([points[nearest == k].std() for k in range(3)])

    train, test = points[:45], points[45:]
    near = torch.cdist(test, train).topk(5, largest=False).indices
    votes = torch.nn.functional.one_hot(labels[:45][near], 3).sum(1)
    predicted = votes.argmax(1)
    confusion = torch.zeros(3, 3, dtype=torch.int64, device=env.device)
    confusion.index_put_((labels[45:], predicted), torch.ones_like(predicted), accumulate=True)

    centred = points - points.mean(0)
    _, s, v = torch.linalg.svd(centred, full_matrices=False)
    flat = (centred @ v.mT[:, 0]).abs()
    order = means[:, 0].argsort()
    sizes = torch.bincount(nearest, minlength=3)[order]
    return {
        "means": means[order],
        "sizes": sizes,
        "spread": spread[order],
        "confusion": confusion,
        "singular": s,
        "flat": flat.sort().values[:5],
        "accuracy": (predicted == labels[45:]).float().mean(),
    }
