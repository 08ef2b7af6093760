"""Parts of a model on two devices: copies back and forth, both trained."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    embed = nn.Embedding(12, 6)
    body = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))
    with torch.no_grad():
        for p in [*embed.parameters(), *body.parameters()]:
            p.copy_(torch.from_numpy(env.array(*p.shape, scale=0.3)))
    body.to(env.device)  # the table stays on the CPU
    first = env.optim.SGD(embed.parameters(), lr=0.2)
    second = env.optim.Adam(body.parameters(), lr=1e-2)
    losses = []
    for _ in range(env.steps(4)):
        ids = torch.from_numpy(env.random.integers(0, 12, (8, 4)))
        labels = torch.from_numpy(env.random.integers(0, 3, 8))
        h = embed(ids).mean(1).to(env.device)
        loss = F.cross_entropy(body(h), labels.to(env.device))
        first.zero_grad()
        second.zero_grad()
        loss.backward()
        first.step()
        second.step()
        losses.append(loss.item())
    state = body.state_dict()
    on_host = {k: v.cpu() for k, v in state.items()}
    other = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))
    other.load_state_dict(on_host)
    x = torch.from_numpy(env.array(5, 6))
    with torch.no_grad():
        here, there = other(x), body(x.to(env.device))
    assert torch.allclose(here, there.cpu(), atol=1e-5)
    other.to(env.device)
    other.load_state_dict(state)

    def predict(v):
        with torch.no_grad():
            return other(v).softmax(-1)

    predict = env.compile(predict)
    again = predict(x.to(env.device)).cpu()
    half = x.to(env.device, torch.float64).to("cpu", torch.float32)
    assert (half == x).all()
    return {"losses": losses, "again": again, "table": embed.weight.detach().norm(dim=1)}
