"""Particles and heat: forces of all pairs, leapfrog steps, stencils, a game of life."""

from __future__ import annotations


def journey(env):
    torch, F = env.torch, env.F
    n, dt = 6, 0.01
    position, velocity = env.tensor(n, 2), env.tensor(n, 2) * 0.1
    mass = env.tensor(n).abs() + 0.5

    def forces(p):
        away = p[None] - p[:, None]
        distance = (away.pow(2).sum(-1) + 0.01).sqrt()
        return (mass[None, :, None] * away / distance[..., None] ** 3).sum(1)

    def leap(p, v):
        v = v + 0.5 * dt * forces(p)
        p = p + dt * v
        return p, v + 0.5 * dt * forces(p)

    leap = env.compile(leap)

    def energy(p, v):
        kinetic = 0.5 * (mass * v.pow(2).sum(1)).sum()
        distance = torch.cdist(p[None], p[None])[0]
        pairs = torch.triu(mass[:, None] * mass / (distance.pow(2) + 0.01).sqrt(), diagonal=1)
        return (kinetic - pairs.sum()).item()

    energies = [energy(position, velocity)]
    for _ in range(env.steps(8)):
        position, velocity = leap(position, velocity)
        energies.append(energy(position, velocity))

    heat = torch.zeros(12, 12, device=env.device)
    heat[4:8, 4:8] = 1.0
    kernel = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]], device=env.device)
    other = heat.clone()
    for _ in range(env.steps(5)):
        inner = heat[1:-1, 1:-1]
        flow = heat[:-2, 1:-1] + heat[2:, 1:-1] + heat[1:-1, :-2] + heat[1:-1, 2:] - 4 * inner
        heat[1:-1, 1:-1] = inner + 0.2 * flow
        change = F.conv2d(other[None, None], kernel[None, None])[0, 0]
        other = other + 0.2 * F.pad(change, (1, 1, 1, 1))
    assert torch.allclose(heat, other, atol=1e-5)

    life = (env.tensor(10, 10) > 0.3).int()
    for _ in range(env.steps(4)):
        around = sum(
            torch.roll(life, (a, b), (0, 1))
            for a in (-1, 0, 1)
            for b in (-1, 0, 1)
            if (a, b) != (0, 0)
        )
        life = ((around == 3) | ((life == 1) & (around == 2))).int()
    return {"energies": energies, "position": position, "heat": heat, "life": life.sum(0)}
