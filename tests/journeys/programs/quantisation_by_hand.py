"""Weights to 8-bit integers and back: scales per channel, integer products, the error made."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    model = env.settle(nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 6))).eval()
    x = env.tensor(10, 16)
    with torch.no_grad():
        exact = model(x)

    def quantised(weight):
        scale = weight.abs().amax(1, keepdim=True) / 127
        return torch.round(weight / scale).clamp(-128, 127).to(torch.int8), scale

    stored = [quantised(layer.weight.detach()) for layer in model if isinstance(layer, nn.Linear)]
    size = sum(q.numel() * q.element_size() + s.numel() * 4 for q, s in stored)

    def forward(x):
        biases = [model[0].bias, model[2].bias]
        for i, ((q, scale), bias) in enumerate(zip(stored, biases, strict=True)):
            top = x.abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
            whole = torch.round(x / top).to(torch.int8)
            product = whole.to(torch.int32) @ q.to(torch.int32).T
            x = product.float() * top * scale.T + bias
            x = F.relu(x) if i == 0 else x
        return x

    forward = env.compile(forward)
    with torch.no_grad():
        found = forward(x)
    error = (found - exact).abs().max()
    assert error < 0.2 * exact.abs().max()

    low = (stored[0][0] & 0x0F).to(torch.uint8)
    high = (stored[0][0].to(torch.int16) >> 4).to(torch.int8)
    again = (high.to(torch.int16) * 16 + low.to(torch.int16)).to(torch.int8)
    assert (again == stored[0][0]).all()
    return {
        "exact": exact,
        "found": found,
        "size": size,
        "levels": stored[0][0].to(torch.int64).abs().sum(1),
        "smallest": stored[1][0].amin(),
    }
