"""Complex numbers: rotations, filtered spectra, phases, a Fourier layer that is trained."""

from __future__ import annotations

import math


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    z = torch.complex(env.tensor(6), env.tensor(6))
    turned = z * torch.exp(torch.tensor(1j * math.pi / 3)).to(env.device)
    product = (z.conj() * turned).sum()

    class FourierLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.real = nn.Parameter(torch.zeros(4))
            self.imag = nn.Parameter(torch.zeros(4))
            self.skip = nn.Linear(16, 16)

        def forward(self, x):
            spectrum = torch.fft.rfft(x)
            weight = torch.complex(self.real, self.imag)
            low = spectrum[..., :4] * weight
            filled = torch.cat([low, torch.zeros_like(spectrum[..., 4:])], -1)
            return torch.fft.irfft(filled, n=16) + self.skip(x)

    model = env.settle(FourierLayer())
    optimizer = env.optim.Adam(model.parameters(), lr=1e-2)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = []
    for _ in range(env.steps(4)):
        x = env.tensor(8, 16)
        losses.append(step(x, x.roll(1, -1)).item())
    image = env.tensor(8, 8)
    spectrum = torch.fft.fftshift(torch.fft.fft2(image))
    radius = (torch.arange(8, device=env.device) - 4.0) ** 2
    keep = (radius[:, None] + radius[None]) < 9
    smooth = torch.fft.ifft2(torch.fft.ifftshift(spectrum * keep)).real
    pairs = torch.view_as_real(turned)
    polar = torch.polar(z.abs(), z.angle())
    assert torch.allclose(torch.view_as_real(polar), torch.view_as_real(z), atol=1e-5)
    return {
        "losses": losses,
        "turned": pairs,
        "product": [product.real.item(), product.imag.item()],
        "smooth": smooth,
        "angles": turned.angle(),
        "roots": torch.view_as_real(torch.fft.fft(torch.eye(4, device=env.device)[1])),
    }
