"""Between torch and this library: weights taken over, memory shared, a layer computed by torch."""

from __future__ import annotations

import numpy as np

NEEDS = ("torch",)


def journey(env):
    import torch as other

    torch, nn, F = env.torch, env.nn, env.F
    other.manual_seed(0)
    theirs = other.nn.Sequential(
        other.nn.Conv2d(1, 4, 3, padding=1), other.nn.BatchNorm2d(4), other.nn.ReLU(),
        other.nn.AdaptiveAvgPool2d(2), other.nn.Flatten(), other.nn.Linear(16, 3),
    )  # fmt: skip
    with other.no_grad():
        for i, parameter in enumerate(theirs.parameters()):
            parameter.copy_(other.from_numpy(np.random.default_rng(i).random(parameter.shape)))
    ours = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip
    state = {name: torch.from_numpy(v.numpy().copy()) for name, v in theirs.state_dict().items()}
    ours.load_state_dict(state)
    ours = ours.to(env.device)

    image = env.array(4, 1, 6, 6)
    x = torch.from_numpy(image).to(env.device)
    forward = env.compile(lambda x: F.log_softmax(ours(x), dim=1))
    ours.eval()
    theirs.eval()
    with torch.no_grad(), other.no_grad():
        here, there = forward(x), theirs(other.from_numpy(image)).log_softmax(1)
    distance = float(np.abs(here.cpu().numpy() - there.numpy()).max())
    assert distance < 1e-4

    shared = other.arange(6, dtype=other.float32)
    seen = torch.from_dlpack(shared)
    shared[2] = 40.0
    doubled = other.from_dlpack((seen.cpu() * 2).contiguous())
    back = other.as_tensor(np.asarray(here.detach().cpu()))

    ours.train()
    optimizer = env.optim.SGD(ours.parameters(), lr=0.01)
    for _ in range(env.steps(3)):
        optimizer.zero_grad()
        loss = F.nll_loss(F.log_softmax(ours(x), dim=1), torch.tensor([0, 1, 2, 0]).to(env.device))
        loss.backward()
        optimizer.step()
    values = {name: other.from_numpy(v.cpu().numpy()) for name, v in ours.state_dict().items()}
    missing = theirs.load_state_dict(values)
    with other.no_grad():
        after = theirs.eval()(other.from_numpy(image))
    return {
        "here": here,
        "shared": doubled.numpy(),
        "back": back.sum(1).numpy(),
        "loss": loss,
        "keys": len(missing.missing_keys) + len(missing.unexpected_keys),
        "after": after.numpy(),
        "seen": int(ours[1].num_batches_tracked),
    }
