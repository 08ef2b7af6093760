"""An autoencoder whose decoder is the transpose of its encoder, with sparsity and pruning."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(6, 12))
            nn.init.xavier_uniform_(self.weight)
            self.inner = nn.Parameter(torch.zeros(6))
            self.outer = nn.Parameter(torch.zeros(12))
            self.register_buffer("mask", torch.ones(6, 12))

        def forward(self, x):
            w = self.weight * self.mask
            code = torch.sigmoid(F.linear(x, w, self.inner))
            return F.linear(code, w.t(), self.outer), code

    model = env.settle(Tied())
    optimizer = env.optim.Adagrad(model.parameters(), lr=0.05)

    def step(x):
        optimizer.zero_grad()
        made, code = model(x)
        loss = F.mse_loss(made, x) + 1e-3 * code.abs().sum(1).mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), code.mean().detach()

    step = env.compile(step)
    losses = [step(env.tensor(16, 12))[0].item() for _ in range(env.steps(4))]

    with torch.no_grad():
        flat = model.weight.abs().flatten()
        limit = flat.kthvalue(flat.numel() // 2).values
        model.mask[model.weight.abs() <= limit] = 0.0
        model.weight.mul_(model.mask)
    kept = int(model.mask.sum())
    losses += [step(env.tensor(16, 12))[0].item() for _ in range(env.steps(3))]
    dead = (model.weight.detach() * (1 - model.mask)).abs().sum()
    names = ",".join(model.state_dict())
    return {"losses": losses, "kept": kept, "dead": dead, "names": names}
