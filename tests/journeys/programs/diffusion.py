"""Denoising diffusion: a schedule of noise, time embeddings, training, and sampling backwards."""

from __future__ import annotations

import math


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    times = 20

    betas = torch.linspace(1e-3, 0.2, times)
    alphas = 1.0 - betas
    kept = torch.cumprod(alphas, dim=0)

    def embed(t, width):
        half = width // 2
        rates = torch.exp(-math.log(10_000) * torch.arange(half, device=t.device) / half)
        angles = t[:, None].float() * rates[None]
        return torch.cat([angles.sin(), angles.cos()], dim=-1)

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Conv1d(1, 8, 3, padding=1)
            self.norm = nn.GroupNorm(2, 8)
            self.time = nn.Linear(8, 8)
            self.outer = nn.Conv1d(8, 1, 3, padding=1)

        def forward(self, x, t):
            h = F.silu(self.norm(self.inner(x)))
            h = h + self.time(embed(t, 8))[:, :, None]
            return self.outer(F.silu(h))

    model = env.settle(Denoiser())
    kept, betas, alphas = kept.to(env.device), betas.to(env.device), alphas.to(env.device)
    optimizer = env.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x, t, noise):
        optimizer.zero_grad()
        share = kept[t][:, None, None]
        mixed = share.sqrt() * x + (1 - share).sqrt() * noise
        loss = F.mse_loss(model(mixed, t), noise)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = []
    for _ in range(env.steps(8)):
        x = env.tensor(6, 1, 16).cumsum(-1) * 0.3
        losses.append(step(x, env.integers(0, times, (6,)), env.tensor(6, 1, 16)).item())

    model.eval()
    x = env.tensor(2, 1, 16)
    with torch.no_grad():
        for number in reversed(range(env.steps(times))):
            t = torch.full((2,), number, dtype=torch.int64, device=env.device)
            noise = model(x, t)
            mean = (x - betas[number] / (1 - kept[number]).sqrt() * noise) / alphas[number].sqrt()
            x = mean + betas[number].sqrt() * env.tensor(2, 1, 16) if number > 0 else mean
    return {"losses": losses, "sample": x}
