"""Policy gradients on a small grid: returns discounted backwards, a baseline, entropy."""

from __future__ import annotations

import numpy as np


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    size, actions, horizon = 5, 4, 8

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(2, 16), nn.Tanh())
            self.actor = nn.Linear(16, actions)
            self.critic = nn.Linear(16, 1)

        def forward(self, state):
            h = self.body(state)
            return self.actor(h), self.critic(h).squeeze(-1)

    policy = env.settle(Policy())
    optimizer = env.optim.Adam(policy.parameters(), lr=1e-2)
    moves = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def update(states, chosen, returns):
        logits, values = policy(states)
        law = torch.distributions.Categorical(logits=logits)
        advantage = returns - values.detach()
        actor = -(law.log_prob(chosen) * advantage).mean() - 0.01 * law.entropy().mean()
        critic = F.mse_loss(values, returns)
        optimizer.zero_grad()
        (actor + 0.5 * critic).backward()
        optimizer.step()
        return actor.detach(), critic.detach()

    update = env.compile(update)
    actors, critics, totals = [], [], []
    for _ in range(env.steps(5)):
        states, chosen, rewards = [], [], []
        at = np.array([0, 0])
        for _ in range(horizon):
            state = torch.tensor(at / size, dtype=torch.float32, device=env.device)
            with torch.no_grad():
                chances = policy(state)[0].softmax(-1).cpu().numpy()
            action = int(np.searchsorted(np.cumsum(chances), env.random.random() * 0.999))
            states.append(state)
            chosen.append(action)
            at = np.clip(at + moves[action], 0, size - 1)
            rewards.append(float(at.sum()) / size)
        returns, total = [], 0.0
        for reward in reversed(rewards):
            total = reward + 0.9 * total
            returns.insert(0, total)
        returns = torch.tensor(returns, device=env.device)
        actor, critic = update(
            torch.stack(states), torch.tensor(chosen, device=env.device), returns
        )
        actors.append(actor.item())
        critics.append(critic.item())
        totals.append(sum(rewards))
    return {"actor": actors, "critic": critics, "totals": totals}
