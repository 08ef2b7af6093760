"""A mixture of experts: routing by top-k, a capacity loss, experts as stacked weights."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    width, experts, chosen = 8, 4, 2

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(width, experts, bias=False)
            self.up = nn.Parameter(torch.zeros(experts, width, 16))
            self.down = nn.Parameter(torch.zeros(experts, 16, width))

        def forward(self, x):
            chances = self.router(x).softmax(-1)
            weight, index = chances.topk(chosen, dim=-1)
            weight = weight / weight.sum(-1, keepdim=True)
            gates = torch.zeros_like(chances).scatter(-1, index, weight)
            h = torch.einsum("nd,edh->neh", x, self.up)
            y = torch.einsum("neh,ehd->ned", F.silu(h), self.down)
            load = F.one_hot(index, experts).float().sum((0, 1)) / index.numel()
            balance = experts * (load * chances.mean(0)).sum()
            return (gates.unsqueeze(-1) * y).sum(1), balance

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.RMSNorm(width)
            self.mixture = Mixture()
            self.head = nn.Linear(width, 3)

        def forward(self, x):
            y, balance = self.mixture(self.norm(x))
            return self.head(x + y), balance

    model = env.settle(Model())
    optimizer = env.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x, y):
        optimizer.zero_grad()
        logits, balance = model(x)
        loss = F.cross_entropy(logits, y) + 0.01 * balance
        loss.backward()
        optimizer.step()
        return loss.detach(), balance.detach()

    step = env.compile(step)
    losses, balances = [], []
    for _ in range(env.steps(5)):
        loss, balance = step(env.tensor(20, width), env.integers(0, 3, (20,)))
        losses.append(loss.item())
        balances.append(balance.item())
    return {"losses": losses, "balances": balances, "router": model.mixture.router.weight}
