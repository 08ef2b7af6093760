"""An optimizer written by the user: sign momentum with state by parameter."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F

    class SignMomentum:
        def __init__(self, parameters, rate, beta=0.9):
            self.parameters = list(parameters)
            self.rate, self.beta = rate, beta
            self.state = [torch.zeros_like(p) for p in self.parameters]

        @torch.no_grad()
        def step(self):
            for p, m in zip(self.parameters, self.state, strict=True):
                if p.grad is None:
                    continue
                m.mul_(self.beta).add_(p.grad, alpha=1 - self.beta)
                p.add_(torch.sign(m), alpha=-self.rate)

        def zero_grad(self):
            for p in self.parameters:
                p.grad = None

    model = env.settle(nn.Sequential(nn.Linear(5, 9), nn.SiLU(), nn.Linear(9, 1)))
    optimizer = SignMomentum(model.parameters(), 0.01)
    true = env.tensor(5, 1)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.l1_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = []
    for _ in range(env.steps(6)):
        x = env.tensor(14, 5)
        losses.append(step(x, torch.sin(x @ true)).item())

    vector = nn.utils.parameters_to_vector(model.parameters()).detach()
    nudged = vector + 0.01 * torch.sign(vector)
    nn.utils.vector_to_parameters(nudged, model.parameters())
    x = env.tensor(14, 5)
    moved = F.l1_loss(model(x), torch.sin(x @ true)).item()
    momentum = torch.cat([m.flatten() for m in optimizer.state])
    return {"losses": losses, "moved": moved, "momentum": momentum.norm(), "count": len(vector)}
