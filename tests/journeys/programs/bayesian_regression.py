"""Bayes by hand: a Gaussian process, a posterior, Langevin steps, a variational fit."""

from __future__ import annotations

import math


def journey(env):
    torch = env.torch
    x = torch.linspace(-2, 2, 10, device=env.device).unsqueeze(1)
    y = torch.sin(2 * x).squeeze(1) + 0.1 * env.tensor(10)
    grid = torch.linspace(-2.5, 2.5, 7, device=env.device).unsqueeze(1)

    def kernel(a, b, length, height):
        return height**2 * torch.exp(-0.5 * (a - b.T) ** 2 / length**2)

    def evidence(log_length, log_height, log_noise):
        k = kernel(x, x, log_length.exp(), log_height.exp())
        k = k + (log_noise.exp() ** 2 + 1e-5) * torch.eye(10, device=x.device)
        factor = torch.linalg.cholesky(k)
        weights = torch.cholesky_solve(y.unsqueeze(1), factor)
        fit = 0.5 * (y @ weights.squeeze(1))
        return fit + factor.diagonal().log().sum() + 5 * math.log(2 * math.pi)

    logs = [torch.tensor(v, device=env.device, requires_grad=True) for v in (0.0, 0.0, -1.5)]
    optimizer = env.optim.Adam(logs, lr=0.05)

    def step():
        optimizer.zero_grad()
        loss = evidence(*logs)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = [step().item() for _ in range(env.steps(6))]
    with torch.no_grad():
        length, height, noise = (v.exp() for v in logs)
        k = kernel(x, x, length, height) + noise**2 * torch.eye(10, device=env.device)
        across = kernel(grid, x, length, height)
        mean = across @ torch.linalg.solve(k, y)
        cover = kernel(grid, grid, length, height) - across @ torch.linalg.inv(k) @ across.T
        spread = cover.diagonal().clamp(min=0).sqrt()

    mu = torch.zeros(1, device=env.device, requires_grad=True)
    rho = torch.zeros(1, device=env.device, requires_grad=True)
    fit = env.optim.SGD([mu, rho], lr=0.05)
    bounds = []
    for _ in range(env.steps(4)):
        law = torch.distributions.Normal(mu, torch.nn.functional.softplus(rho))
        prior = torch.distributions.Normal(torch.zeros_like(mu), torch.ones_like(mu))
        sample = law.mean + law.stddev * env.tensor(20, 1)
        likelihood = -((sample * x.T - y) ** 2).sum(1).mean()
        bound = torch.distributions.kl_divergence(law, prior).sum() - 0.1 * likelihood
        fit.zero_grad()
        bound.backward()
        fit.step()
        bounds.append(bound.item())
    return {"losses": losses, "mean": mean, "spread": spread, "bounds": bounds, "mu": mu}
