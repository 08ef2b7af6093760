"""A graph network: messages gathered along edges and added up at nodes, masks of nodes."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    nodes = 12

    class Convolution(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.own = nn.Linear(inputs, outputs)
            self.other = nn.Linear(inputs, outputs, bias=False)

        def forward(self, x, edges):
            source, target = edges
            messages = self.other(x)[source]
            total = torch.zeros(len(x), messages.shape[1], device=x.device)
            total = total.index_add(0, target, messages)
            degree = torch.zeros(len(x), device=x.device)
            degree = degree.scatter_add(0, target, torch.ones_like(target, dtype=x.dtype))
            return self.own(x) + total / degree.clamp(min=1).unsqueeze(1)

    class Attention(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.score = nn.Linear(2 * width, 1)

        def forward(self, x, edges):
            source, target = edges
            e = F.leaky_relu(self.score(torch.cat([x[source], x[target]], 1))).squeeze(1)
            top = torch.full((len(x),), -1e9, device=x.device)
            top = top.scatter_reduce(0, target, e, reduce="amax", include_self=True)
            weight = torch.exp(e - top[target].detach())
            total = torch.zeros(len(x), device=x.device).scatter_add(0, target, weight)
            share = weight / total[target]
            return torch.zeros_like(x).index_add(0, target, share.unsqueeze(1) * x[source])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Convolution(5, 8), Attention(8)
            self.last = Convolution(8, 3)

        def forward(self, x, edges):
            h = F.elu(self.first(x, edges))
            return self.last(h + self.second(h, edges), edges)

    source = torch.tensor([i for i in range(nodes) for _ in range(2)], device=env.device)
    target = torch.tensor(
        [(i * k) % nodes for i in range(nodes) for k in (3, 5)], device=env.device
    )
    edges = torch.stack([source, target])
    x, y = env.tensor(nodes, 5), env.integers(0, 3, (nodes,))
    known = torch.arange(nodes, device=env.device) < 8

    model = env.settle(Net())
    optimizer = env.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)

    def step(x, edges, y):
        optimizer.zero_grad()
        logits = model(x, edges)
        loss = F.cross_entropy(logits[:8], y[:8])
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = [step(x, edges, y).item() for _ in range(env.steps(5))]
    model.eval()
    with torch.no_grad():
        logits = model(x, edges)
        adjacency = torch.zeros(nodes, nodes, device=env.device)
        adjacency[source, target] = 1.0
    return {
        "losses": losses,
        "logits": logits,
        "degree": adjacency.sum(1),
        "right": (logits.argmax(1) == y)[known].sum(),
    }
