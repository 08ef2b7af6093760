"""Fourier transforms, windows, mel weights, random numbers."""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np

import svod
from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.limits import check_host
from svod.frontend.onnx.registry import Array, Host, Tensor, Value, operator
from svod.frontend.onnx.types import element


def _window(size: Host, periodic: int, number: int, terms: tuple[float, ...]) -> Value:
    count = int(size.reshape(-1)[0])
    check_host(count)
    last = count if periodic else max(count - 1, 1)
    angle = np.arange(count) * (2 * pi / last)
    found = sum(((-1) ** k) * f * np.cos(k * angle) for k, f in enumerate(terms))
    return np.asarray(found).astype(element(number).array)


@operator("HannWindow")
def hann(size: Host, *, output_datatype: int = 1, periodic: int = 1) -> Value:
    return _window(size, periodic, output_datatype, (0.5, 0.5))


@operator("HammingWindow")
def hamming(size: Host, *, output_datatype: int = 1, periodic: int = 1) -> Value:
    return _window(size, periodic, output_datatype, (25 / 46, 21 / 46))


@operator("BlackmanWindow")
def blackman(size: Host, *, output_datatype: int = 1, periodic: int = 1) -> Value:
    return _window(size, periodic, output_datatype, (0.42, 0.5, 0.08))


@operator("MelWeightMatrix")
def mel_weights(
    bins: Host, length: Host, rate: Host, low: Host, high: Host, *, output_datatype: int = 1
) -> Value:
    count = int(bins.reshape(-1)[0])
    spectrum = int(length.reshape(-1)[0]) // 2 + 1
    check_host(spectrum, count + 2)
    edges = np.array([float(low.reshape(-1)[0]), float(high.reshape(-1)[0])])
    mels = 2595 * np.log10(1 + edges / 700)
    points = np.arange(count + 2) * ((mels[1] - mels[0]) / (count + 2)) + mels[0]
    hertz = 700 * (10 ** (points / 2595) - 1)
    spots = ((int(length.reshape(-1)[0]) + 1) * hertz // int(rate.reshape(-1)[0])).astype(int)
    found = np.zeros((spectrum, count))
    for i in range(count):
        first, middle, last = spots[i : i + 3]
        if first == middle:
            found[middle, i] = 1
        else:
            for j in range(first, middle + 1):
                found[j, i] = (j - first) / (middle - first)
        for j in range(middle, last):
            found[j, i] = (last - j) / (last - middle)
    return found.astype(element(output_datatype).array)


@operator("DFT", since=20)
def dft(
    x: Tensor, length: Host | None = None, axis: Host | None = None, *, inverse: int = 0,
    onesided: int = 0,
) -> Tensor:  # fmt: skip
    return _dft(x, length, int(axis.reshape(-1)[0]) if axis is not None else -2, inverse, onesided)


@operator("DFT")
def dft_by_attribute(
    x: Tensor, length: Host | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    return _dft(x, length, axis, inverse, onesided)


def _dft(x: Tensor, length: Array | None, axis: int, inverse: int, onesided: int) -> Tensor:
    """A transform of pairs of real and imaginary parts in the last axis."""
    axis %= x.ndim
    count = int(length.reshape(-1)[0]) if length is not None else x.shape[axis]
    if length is None and inverse and onesided:
        count = 2 * (count - 1)
    dtype = x.dtype
    if not inverse:
        x = x.cast(dt.float64)  # zeros of a spectrum are zeros within the tolerance of float32
    elif dtype not in (dt.float32, dt.float64):
        x = x.cast(dt.float32)
    if inverse and onesided:
        found = svod.fft.irfft(svod.complex(x[..., 0], x[..., 1]), n=count, axis=axis)
        return found.unsqueeze(-1).cast(dtype)
    if x.shape[-1] == 1 and onesided:
        found = svod.fft.rfft(x[..., 0], n=count, axis=axis)
    else:
        parts = x if x.shape[-1] == 2 else svod.concat([x, svod.zeros_like(x)], axis=-1)
        whole = svod.complex(parts[..., 0], parts[..., 1])
        found = (svod.fft.ifft if inverse else svod.fft.fft)(whole, n=count, axis=axis)
        if onesided:
            found = found[(slice(None),) * axis + (slice(0, count // 2 + 1),)]
    return svod.view_as_real(found).cast(dtype)


@operator("STFT")
def stft(
    x: Tensor, step: Host, window: Tensor | None = None, length: Host | None = None, *,
    onesided: int = 1,
) -> Tensor:  # fmt: skip
    hop = int(step.reshape(-1)[0])
    size = int(length.reshape(-1)[0]) if length is not None else window.shape[0]  # type: ignore[union-attr]
    frames = (x.shape[1] - size) // hop + 1
    check_host(frames, size)
    places = np.arange(frames)[:, None] * hop + np.arange(size)
    parts = x[:, svod.Tensor(places)]
    if window is not None:
        parts = parts * window.reshape(1, 1, -1, 1)
    return _dft(parts, None, 2, 0, onesided if x.shape[-1] == 1 else 0)


def _draw(
    shape: Any, seed: float | None, is_normal: bool, a: float, b: float, number: int
) -> Tensor:
    if seed is not None:
        svod.manual_seed(int(seed))
    values = svod.randn(*shape) * b + a if is_normal else svod.rand(*shape) * (b - a) + a
    return values.cast(element(number).carrier)


@operator("RandomNormal")
def random_normal(
    *, shape: list[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:  # fmt: skip
    return _draw(shape, seed, True, mean, scale, dtype)


@operator("RandomUniform")
def random_uniform(
    *, shape: list[int], dtype: int = 1, low: float = 0.0, high: float = 1.0,
    seed: float | None = None,
) -> Tensor:  # fmt: skip
    return _draw(shape, seed, False, low, high, dtype)


@operator("RandomNormalLike")
def random_normal_like(
    x: Tensor, *, dtype: int = 0, mean: float = 0.0, scale: float = 1.0, seed: float | None = None,
    node: NodeView,
) -> Tensor:  # fmt: skip
    return _draw(x.shape, seed, True, mean, scale, dtype or node.element(0))


@operator("RandomUniformLike")
def random_uniform_like(
    x: Tensor, *, dtype: int = 0, low: float = 0.0, high: float = 1.0, seed: float | None = None,
    node: NodeView,
) -> Tensor:  # fmt: skip
    return _draw(x.shape, seed, False, low, high, dtype or node.element(0))


@operator("Bernoulli")
def bernoulli(x: Tensor, *, dtype: int = 0, seed: float | None = None, node: NodeView) -> Tensor:
    hit = _draw(x.shape, seed, False, 0.0, 1.0, 1) < x
    return hit.cast(element(dtype or node.element(0)).carrier)
