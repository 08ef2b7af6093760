"""Gradients of gradients: a gradient penalty, Hessian products, Newton steps, a Jacobian."""

from __future__ import annotations


def journey(env):
    torch, nn = env.torch, env.nn
    critic = env.settle(nn.Sequential(nn.Linear(4, 10), nn.Tanh(), nn.Linear(10, 1)))
    optimizer = env.optim.Adam(critic.parameters(), lr=1e-2)

    def step(real, made, mix):
        between = (mix * real + (1 - mix) * made).requires_grad_(True)
        scores = critic(between)
        (slope,) = torch.autograd.grad(
            scores, between, grad_outputs=torch.ones_like(scores), create_graph=True
        )
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        loss = critic(made).mean() - critic(real).mean() + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), penalty.detach()

    step = env.compile(step)
    losses, penalties = [], []
    for _ in range(env.steps(4)):
        mix = torch.from_numpy(env.random.random((8, 1)).astype("float32")).to(env.device)
        loss, penalty = step(env.tensor(8, 4) + 1, env.tensor(8, 4), mix)
        losses.append(loss.item())
        penalties.append(penalty.item())

    def rosenbrock(p):
        return (1 - p[0]) ** 2 + 5 * (p[1] - p[0] ** 2) ** 2

    p = torch.tensor([-0.5, 0.8], device=env.device)
    path = []
    for _ in range(env.steps(6)):
        h = torch.func.hessian(rosenbrock)(p)
        g = torch.func.grad(rosenbrock)(p)
        p = p - torch.linalg.solve(h, g)
        path.append(rosenbrock(p).item())
    _, product = torch.autograd.functional.vhp(rosenbrock, p, torch.ones_like(p))
    jacobian = torch.func.jacrev(lambda x: torch.stack([x.sin().sum(), (x**3).sum()]))(p)
    return {
        "losses": losses,
        "penalties": penalties,
        "path": path,
        "product": product,
        "jacobian": jacobian,
    }
