"""Looking inside a model: forward hooks, gradients of activations, saliency, parameter counts."""

from __future__ import annotations


def journey(env):
    nn, F = env.nn, env.F
    model = env.settle(
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3),
        )
    )  # fmt: skip
    seen = {}

    def remember(name):
        def hook(module, inputs, output):
            seen[name] = output.detach().mean().item()

        return hook

    handles = [
        module.register_forward_hook(remember(name))
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d)
    ]
    x = env.tensor(2, 1, 8, 8)
    model(x)
    for handle in handles:
        handle.remove()
    before = dict(seen)
    env.compile(lambda x: model(x))(x * 100)
    assert seen == before

    x = x.clone().requires_grad_(True)
    logits = model(x)
    logits[0, logits[0].argmax()].backward()
    saliency = x.grad.abs().amax(1)

    features = model[:4](x.detach())
    features.retain_grad() if features.requires_grad else None
    score = model[4:](features)[:, 1].sum()
    score.backward()
    weights = features.grad.mean((2, 3), keepdim=True)
    cam = F.relu((weights * features).sum(1)).detach()
    cam = F.interpolate(cam[:, None], scale_factor=2, mode="bilinear", align_corners=False)

    count = sum(p.numel() for p in model.parameters())
    kinds = ",".join(type(m).__name__ for m in model.modules())
    return {
        "seen": [before["0"], before["2"]],
        "saliency": saliency.sum((1, 2)),
        "cam": cam.sum((1, 2, 3)),
        "count": count,
        "kinds": kinds,
    }
