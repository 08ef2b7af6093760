"""A data pipeline between NumPy and tensors: shared memory, statistics, masks, sorting, joins."""

from __future__ import annotations

import numpy as np


def journey(env):
    torch = env.torch
    table = env.array(40, 5)
    table[3, 2] = np.nan
    table[17, 0] = np.inf

    shared = torch.from_numpy(table)
    table[5, 1] = 42.0
    assert shared[5, 1].item() == 42.0
    x = shared.to(env.device)

    def normalised(x):
        clean = torch.where(torch.isfinite(x), x, torch.zeros_like(x))
        mean, std = clean.mean(0), clean.std(0)
        return (clean - mean) / std

    scaled = env.compile(normalised)(x)
    is_far = scaled.abs() > 2
    rows = is_far.any(dim=1)
    kept = scaled[~rows]
    ranks = torch.argsort(kept[:, 1])
    top = torch.topk(scaled[:, 2], 4)
    groups = (env.integers(0, 3, (40,))).to(env.device)
    sums = torch.zeros(3, 5, device=env.device).index_add(0, groups, scaled)
    counts = torch.bincount(groups, minlength=3)
    centres = sums / counts[:, None]
    nearest = torch.cdist(scaled, centres).argmin(1)
    covariance = torch.cov(scaled.T)
    values = torch.linalg.eigvalsh(covariance)
    quantiles = torch.quantile(scaled[:, 3], torch.tensor([0.1, 0.5, 0.9], device=env.device))
    back = kept.cpu().numpy()
    assert isinstance(back, np.ndarray) and back.dtype == np.float32
    both = np.concatenate([back, np.asarray(scaled.cpu())])
    return {
        "rows": rows.sum(),
        "shape": back.shape,
        "ranks": ranks[:8],
        "top": top.values,
        "top at": top.indices,
        "centres": centres,
        "nearest": nearest,
        "values": values,
        "quantiles": quantiles,
        "both": both.sum(0),
        "unique": torch.unique(groups),
    }
