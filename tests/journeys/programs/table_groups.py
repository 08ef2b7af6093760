"""Tables as tensors: group by, pivots, ranks within groups, running totals, gaps."""

from __future__ import annotations

import numpy as np


def journey(env):
    torch = env.torch
    n = 40
    shop = env.integers(0, 4, (n,))
    product = env.integers(0, 3, (n,))
    amount = env.tensor(n).abs() * 10
    amount[7] = float("nan")
    known = ~torch.isnan(amount)
    clean = torch.nan_to_num(amount, nan=0.0)

    def grouped(shop, clean, known):
        total = torch.zeros(4, device=env.device).scatter_add_(0, shop, clean)
        count = torch.zeros(4, device=env.device).scatter_add_(0, shop, known.float())
        return total, total / count

    total, mean = env.compile(grouped)(shop, clean, known)
    pivot = torch.zeros(4, 3, device=env.device)
    pivot.index_put_((shop, product), clean, accumulate=True)
    largest = torch.full((4,), float("-inf"), device=env.device)
    largest.scatter_reduce_(0, shop, clean, "amax")

    order = torch.argsort(shop, stable=True)
    sorted_shop, sorted_amount = shop[order], clean[order]
    starts = torch.cat(
        [torch.ones(1, dtype=torch.bool, device=env.device), sorted_shop[1:] != sorted_shop[:-1]]
    )
    running = sorted_amount.cumsum(0)
    offset = (
        torch.where(starts, running - sorted_amount, torch.zeros_like(running)).cummax(0).values
    )
    within = running - offset

    prices = torch.tensor([1.5, 2.5, 4.0], device=env.device)
    revenue = (clean * prices[product]).sum()
    names = np.array(["north", "east", "south", "west"])
    best = names[int(total.argmax())]
    unique, back = torch.unique(shop * 10 + product, return_inverse=True)
    sizes = torch.bincount(back, minlength=len(unique))
    share = pivot / pivot.sum(1, keepdim=True)
    top = pivot.flatten().topk(3)
    rows, columns = top.indices // 3, top.indices % 3
    return {
        "total": total,
        "mean": mean,
        "pivot": pivot,
        "largest": largest,
        "within": within,
        "revenue": revenue,
        "best": str(best),
        "sizes": sizes,
        "share": share,
        "rows": rows,
        "columns": columns,
        "nanmean": torch.nanmean(amount),
        "median": clean.median(),
        "corr": torch.corrcoef(torch.stack([clean, prices[product]]))[0, 1],
    }
