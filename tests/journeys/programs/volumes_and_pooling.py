"""3-D convolutions and pooling of every kind, indices of maxima undone, attention pooling."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F

    class Volume(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv3d(1, 4, 3, padding=1)
            self.pool = nn.MaxPool3d(2)
            self.query = nn.Parameter(torch.zeros(4))
            self.out = nn.Linear(4, 2)

        def forward(self, x):
            h = self.pool(F.elu(self.conv(x))).flatten(2)
            weight = torch.softmax((h * self.query[None, :, None]).sum(1), -1)
            return self.out((h * weight[:, None]).sum(-1))

    model = env.settle(Volume())
    optimizer = env.optim.Adadelta(model.parameters(), lr=1.0)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.multi_margin_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = [
        step(env.tensor(3, 1, 6, 6, 6), env.integers(0, 2, (3,))).item()
        for _ in range(env.steps(4))
    ]
    x = env.tensor(1, 2, 6, 6)
    pooled, index = F.max_pool2d(x, 2, return_indices=True)
    undone = F.max_unpool2d(pooled, index, 2)
    return {
        "losses": losses,
        "undone": undone.sum((0, 1)),
        "average": F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False).flatten(),
        "power": F.lp_pool2d(x.abs(), 2, 2).flatten(),
        "adaptive": F.adaptive_max_pool2d(x, (2, 3)).flatten(),
        "bilinear": F.interpolate(x, size=(3, 9), mode="bilinear", align_corners=True).mean((0, 1)),
        "nearest": F.interpolate(x, scale_factor=1.5, mode="nearest").sum((0, 1, 2)),
        "shuffled": F.pixel_shuffle(env.tensor(1, 4, 2, 2), 2).flatten(),
        "grid": F.grid_sample(
            x,
            F.affine_grid(
                torch.tensor([[[0.8, 0.1, 0.0], [0.0, 0.9, 0.1]]], device=env.device),
                (1, 2, 3, 3),
                align_corners=False,
            ),
            align_corners=False,
        ).flatten(),
        "local": F.local_response_norm(x, 2).mean((0, 2, 3)),
    }
