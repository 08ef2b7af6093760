"""Weights through files: a state dict saved, loaded in part, renamed, and cast."""

from __future__ import annotations


def journey(env):
    torch, nn = env.torch, env.nn

    def make(classes):
        return nn.Sequential(
            nn.Embedding(10, 6), nn.Flatten(), nn.Linear(18, 8), nn.ReLU(), nn.Linear(8, classes)
        )

    first = make(4)
    env.settle(first)
    path = str(env.folder / "weights.pt")
    torch.save(first.state_dict(), path)
    ids = env.integers(0, 10, (5, 3))
    with torch.no_grad():
        expected = first(ids)

    same = make(4).to(env.device)
    state = torch.load(path)
    same.load_state_dict(state)
    classify = env.compile(lambda ids: same(ids))
    with torch.no_grad():
        assert torch.allclose(classify(ids), expected, atol=1e-6)

    other = make(7).to(env.device)
    with torch.no_grad():
        for p in other.parameters():
            p.fill_(0.05)
    kept = {k: v for k, v in state.items() if other.state_dict()[k].shape == v.shape}
    missing, unexpected = other.load_state_dict(kept, strict=False)
    try:
        other.load_state_dict(state)
        refused = "no"
    except Exception as error:
        refused = "yes" if "4" in str(error) else str(error)
    with torch.no_grad():
        partly = other(ids)

    half = {k: v.to(torch.bfloat16) if v.is_floating_point() else v for k, v in state.items()}
    small = str(env.folder / "half.pt")
    torch.save(half, small)
    back = torch.load(small)
    assert all(v.dtype == torch.bfloat16 for v in back.values())
    same.load_state_dict(back)
    with torch.no_grad():
        rounded = classify(ids)
    assert same[2].weight.dtype == torch.float32
    return {
        "expected": expected,
        "partly": partly,
        "rounded": rounded,
        "missing": ",".join(missing),
        "unexpected": len(unexpected),
        "refused": refused,
        "keys": ",".join(state),
    }
