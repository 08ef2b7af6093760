"""Deep Q-learning: a replay buffer in a tensor, a target network, actions gathered."""

from __future__ import annotations

import copy

import numpy as np


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    states, actions, room = 4, 3, 40
    online = env.settle(nn.Sequential(nn.Linear(states, 16), nn.ReLU(), nn.Linear(16, actions)))
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = env.optim.Adam(online.parameters(), lr=5e-3)
    memory = {
        "state": torch.zeros(room, states, device=env.device),
        "action": torch.zeros(room, dtype=torch.int64, device=env.device),
        "reward": torch.zeros(room, device=env.device),
        "next": torch.zeros(room, states, device=env.device),
        "done": torch.zeros(room, dtype=torch.bool, device=env.device),
    }

    def learn(state, action, reward, after, done):
        with torch.no_grad():
            best = online(after).argmax(1, keepdim=True)
            value = target(after).gather(1, best).squeeze(1)
            wanted = reward + 0.9 * value * (~done).float()
        found = online(state).gather(1, action.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(found, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), (found - wanted).abs().detach()

    learn = env.compile(learn)
    state = env.random.standard_normal(states).astype(np.float32)
    losses, chosen = [], []
    for t in range(env.steps(30)):
        with torch.no_grad():
            values = online(torch.from_numpy(state).to(env.device))
        action = int(values.argmax()) if env.random.random() > 0.3 else int(env.random.integers(3))
        after = (0.9 * state + 0.1 * (action - 1)).astype(np.float32)
        i = t % room
        memory["state"][i] = torch.from_numpy(state)
        memory["action"][i] = action
        memory["reward"][i] = float(-np.abs(after).sum())
        memory["next"][i] = torch.from_numpy(after)
        memory["done"][i] = t % 10 == 9
        state = after
        chosen.append(action)
        if t >= 8 and t % 4 == 0:
            rows = env.integers(0, t, (8,))
            loss, _ = learn(*(memory[k][rows] for k in memory))
            losses.append(loss.item())
            with torch.no_grad():
                for p, q in zip(online.parameters(), target.parameters(), strict=True):
                    q.lerp_(p, 0.2)
    return {
        "losses": losses,
        "chosen": chosen,
        "reward": memory["reward"].sum(),
        "done": memory["done"].sum(),
    }
