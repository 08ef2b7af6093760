"""A GAN: two models, two optimizers, labels smoothed, gradients kept out of the other model."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    noise, size = 6, 10

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                nn.Linear(noise, 16, bias=False),
                nn.BatchNorm1d(16),
                nn.LeakyReLU(0.2),
                nn.Linear(16, size),
            )

        def forward(self, z):
            return torch.tanh(self.net(z))

    class Discriminator(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = nn.Linear(size, 16)
            self.out = nn.Linear(16, 1)

        def forward(self, x):
            return self.out(F.leaky_relu(self.hidden(x), 0.2)).squeeze(-1)

    generator, critic = env.settle(Generator()), env.settle(Discriminator())
    g_optimizer = env.optim.Adam(generator.parameters(), lr=5e-3, betas=(0.5, 0.999))
    d_optimizer = env.optim.Adam(critic.parameters(), lr=5e-3, betas=(0.5, 0.999))

    def train_critic(real, z):
        d_optimizer.zero_grad()
        made = generator(z).detach()
        true = torch.full((len(real),), 0.9, device=real.device)
        loss_real = F.binary_cross_entropy_with_logits(critic(real), true)
        loss_made = F.binary_cross_entropy_with_logits(
            critic(made), torch.zeros(len(real), device=real.device)
        )
        loss = loss_real + loss_made
        loss.backward()
        d_optimizer.step()
        return loss.detach(), torch.sigmoid(critic(real)).mean().detach()

    def train_generator(z):
        g_optimizer.zero_grad()
        scores = critic(generator(z))
        loss = F.binary_cross_entropy_with_logits(scores, torch.ones_like(scores))
        loss.backward()
        g_optimizer.step()
        return loss.detach()

    train_critic, train_generator = env.compile(train_critic), env.compile(train_generator)
    d_losses, g_losses, trust = [], [], []
    for _ in range(env.steps(8)):
        real = env.tensor(12, size).clamp(-1, 1) * 0.5 + 0.3
        d_loss, seen = train_critic(real, env.tensor(12, noise))
        g_loss = train_generator(env.tensor(12, noise))
        d_losses.append(d_loss.item())
        g_losses.append(g_loss.item())
        trust.append(seen.item())
    generator.eval()
    with torch.no_grad():
        made = generator(env.tensor(3, noise))
    return {"critic": d_losses, "generator": g_losses, "trust": trust, "made": made}
