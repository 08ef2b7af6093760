"""Cases of stft and istft, and what torch gives for them.

``python -m tests.tensor.stft_cases`` writes the file again, where torch can be imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

RECORDED = Path(__file__).parent / "stft_recorded.npz"
Array = np.ndarray[Any, Any]

# name: shape of the signal, is it complex, options of stft; "window" is a name of a window
FORWARD: dict[str, tuple[tuple[int, ...], bool, dict[str, Any]]] = {
    "plain": ((100,), False, {"n_fft": 16}),
    "batch": ((3, 100), False, {"n_fft": 16, "hop_length": 5, "window": "hann"}),
    "narrow window": ((3, 90), False, {"n_fft": 16, "win_length": 11, "window": "hamming"}),
    "no window": ((90,), False, {"n_fft": 16, "win_length": 7}),
    "not centred": ((90,), False, {"n_fft": 20, "center": False, "window": "blackman"}),
    "constant border": ((50,), False, {"n_fft": 12, "pad_mode": "constant"}),
    "odd size": ((64,), False, {"n_fft": 15, "hop_length": 4, "window": "bartlett"}),
    "normalized": ((64,), False, {"n_fft": 16, "normalized": True, "window": "kaiser"}),
    "two sides": ((2, 64), False, {"n_fft": 16, "onesided": False, "window": "hann"}),
    "complex": ((2, 64), True, {"n_fft": 16, "window": "hann"}),
}
# name: the case of stft whose result it takes, options of istft
BACK: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("plain", {"n_fft": 16}),
    "batch": ("batch", {"n_fft": 16, "hop_length": 5, "window": "hann"}),
    "narrow window": ("narrow window", {"n_fft": 16, "win_length": 11, "window": "hamming"}),
    "length": ("batch", {"n_fft": 16, "hop_length": 5, "window": "hann", "length": 77}),
    "longer": ("plain", {"n_fft": 16, "length": 120}),
    "not centred": ("not centred", {"n_fft": 20, "center": False}),
    "odd size": ("odd size", {"n_fft": 15, "hop_length": 4, "window": "hamming"}),
    "normalized": ("normalized", {"n_fft": 16, "normalized": True}),
    "two sides": ("two sides", {"n_fft": 16, "onesided": False, "window": "hann"}),
    "complex": ("complex", {"n_fft": 16, "onesided": False, "return_complex": True}),
}


def signal(name: str) -> Array:
    shape, is_complex, _ = FORWARD[name]
    random = np.random.default_rng(len(name))
    found = random.normal(size=shape)
    return found + 1j * random.normal(size=shape) if is_complex else found


def options(given: dict[str, Any], library: Any, dtype: Any) -> dict[str, Any]:
    """The options with a window made by a library in place of its name."""
    found = dict(given)
    if "window" in given:
        size = given.get("win_length", given["n_fft"])
        found["window"] = getattr(library, f"{given['window']}_window")(size, dtype=dtype)
    return found


def record() -> None:
    import torch

    results = {}
    for name, (_, _, given) in FORWARD.items():
        x = torch.from_numpy(signal(name))
        found = torch.stft(x, return_complex=True, **options(given, torch, torch.float64))
        results[f"stft {name}"] = found.numpy()
    for name, (source, given) in BACK.items():
        z = torch.from_numpy(results[f"stft {source}"])
        found = torch.istft(z, **options(given, torch, torch.float64))
        results[f"istft {name}"] = found.numpy()
    np.savez_compressed(RECORDED, **results)


if __name__ == "__main__":
    record()
