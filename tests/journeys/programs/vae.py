"""A variational autoencoder: reparameterised noise, two losses, interpolation between codes."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    pixels, hidden, code = 36, 24, 3

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Sequential(nn.Linear(pixels, hidden), nn.ReLU())
            self.mean = nn.Linear(hidden, code)
            self.log_variance = nn.Linear(hidden, code)
            self.decode = nn.Sequential(
                nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, pixels), nn.Sigmoid()
            )

        def forward(self, x, noise):
            h = self.encode(x.flatten(1))
            mean, log_variance = self.mean(h), self.log_variance(h)
            z = mean + torch.exp(0.5 * log_variance) * noise
            return self.decode(z), mean, log_variance

    model = env.settle(VAE())
    optimizer = env.optim.Adam(model.parameters(), lr=1e-2)
    images = torch.sigmoid(3 * env.tensor(64, 6, 6))

    def step(x, noise):
        optimizer.zero_grad()
        made, mean, log_variance = model(x, noise)
        reconstruction = F.binary_cross_entropy(made, x.flatten(1), reduction="sum")
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        loss = (reconstruction + divergence) / len(x)
        loss.backward()
        optimizer.step()
        return loss.detach(), divergence.detach()

    step = env.compile(step)
    losses, divergences = [], []
    for _ in range(env.steps(4)):
        for start in range(0, 64, 16):
            loss, divergence = step(images[start : start + 16], env.tensor(16, code))
            losses.append(loss.item())
            divergences.append(float(divergence))

    with torch.no_grad():
        h = model.encode(images[:2].flatten(1))
        first, second = model.mean(h)
        ways = torch.linspace(0, 1, 4, device=env.device)[:, None]
        between = model.decode(first * (1 - ways) + second * ways).view(4, 6, 6)
    return {"losses": losses, "divergences": divergences, "between": between}
