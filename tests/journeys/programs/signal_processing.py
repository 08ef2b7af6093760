"""Audio by hand: a spectrogram, mel-like filters, denoising in frequency, resampling, filtering."""

from __future__ import annotations

import math

import numpy as np


def journey(env):
    torch, F = env.torch, env.F
    rate = 400
    t = torch.arange(rate, device=env.device) / rate
    clean = torch.sin(2 * math.pi * 30 * t) + 0.5 * torch.sin(2 * math.pi * 75 * t)
    noisy = clean + 0.3 * env.tensor(rate)

    window = torch.hann_window(64, device=env.device)
    spectrum = torch.stft(noisy, 64, hop_length=16, window=window, return_complex=True)
    power = spectrum.abs().pow(2)
    bank = torch.zeros(8, 33, device=env.device)
    for i in range(8):
        bank[i, i * 4 : i * 4 + 5] = 1.0 - (torch.arange(5, device=env.device) - 2).abs() / 3
    mel = torch.log(bank @ power + 1e-6)

    gate = power > 0.2 * power.max()
    back = torch.istft(spectrum * gate, 64, hop_length=16, window=window, length=rate)
    error = F.mse_loss(back, clean)

    frequencies = torch.fft.rfft(noisy)
    peaks = frequencies.abs().topk(2).indices.sort().values
    low = frequencies.clone()
    low[60:] = 0
    smooth = torch.fft.irfft(low, n=rate)

    kernel = torch.from_numpy(np.hanning(9).astype(np.float32)).to(env.device)
    kernel = (kernel / kernel.sum()).view(1, 1, -1)
    smoothed = env.compile(lambda x: F.conv1d(x.view(1, 1, -1), kernel, padding=4).flatten())
    filtered = smoothed(noisy)
    halved = F.interpolate(filtered.view(1, 1, -1), scale_factor=0.5, mode="linear")
    shifted = torch.roll(noisy, 5)
    lag = F.conv1d(F.pad(shifted, (10, 10)).view(1, 1, -1), noisy.view(1, 1, -1)).flatten().argmax()
    envelope = F.max_pool1d(noisy.abs().view(1, 1, -1), 20).flatten()
    return {
        "mel": mel.mean(1),
        "error": error,
        "peaks": peaks,
        "smooth": smooth[:10],
        "filtered": filtered.std(),
        "halved": halved.flatten()[:5],
        "lag": lag,
        "envelope": envelope[:6],
    }
