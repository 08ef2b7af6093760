"""An image is optimised, not a model: Gram matrices, total variation, clamping in place."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    features = env.settle(
        nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1, padding_mode="reflect"),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 8, 3, padding=1, padding_mode="replicate"),
        )
    ).eval()
    for p in features.parameters():
        p.requires_grad_(False)

    def gram(y):
        b, c, h, w = y.shape
        flat = y.reshape(b, c, h * w)
        return flat @ flat.transpose(1, 2) / (c * h * w)

    content, style = (
        torch.sigmoid(env.tensor(1, 3, 12, 12)),
        torch.sigmoid(env.tensor(1, 3, 12, 12)),
    )
    with torch.no_grad():
        wanted_content, wanted_style = features(content), gram(features(style))
    image = content.clone().requires_grad_(True)
    optimizer = env.optim.Adam([image], lr=0.05)

    def step():
        optimizer.zero_grad()
        found = features(image)
        loss = F.mse_loss(found, wanted_content) + 50 * F.mse_loss(gram(found), wanted_style)
        smooth = (image[..., 1:] - image[..., :-1]).abs().mean()
        smooth = smooth + (image[..., 1:, :] - image[..., :-1, :]).abs().mean()
        (loss + 0.1 * smooth).backward()
        optimizer.step()
        with torch.no_grad():
            image.clamp_(0, 1)
        return loss.detach(), smooth.detach()

    step = env.compile(step)
    losses, variations = [], []
    for _ in range(env.steps(5)):
        loss, smooth = step()
        losses.append(loss.item())
        variations.append(smooth.item())
    pixels = (image.detach() * 255).round().to(torch.uint8)
    return {
        "losses": losses,
        "variations": variations,
        "range": [image.min().item(), image.max().item()],
        "channels": pixels.to(torch.int64).sum((0, 2, 3)).float() / 144,
    }
