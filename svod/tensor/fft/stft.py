"""The short-time Fourier transform and its inverse, with the arguments of torch."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from svod.base.errors import DTypeError, ShapeError
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.tensor.core.complex_parts import joined, parts
from svod.tensor.core.slicing import slice_axis
from svod.tensor.core.tensor_core import Core, integer, wrap
from svod.tensor.core.tracing import is_traced
from svod.tensor.ops.reductions import fold

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

SMALLEST = 1e-11  # of the windows that overlap: below, their quotient is noise


class _Pieces(NamedTuple):
    """How a signal is cut: the size of a piece, the distance of two, and the window over each."""

    size: int
    hop: int
    window: Tensor | None


def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Tensor:
    """The transforms of pieces of a signal, (.., frequencies, pieces).

    Pieces of n_fft values, hop_length apart, are multiplied by a window. With ``center`` the first
    one lies around the first value.
    """
    from svod.tensor.fft import transforms

    is_complex = input.dtype.kind == "c" or (window is not None and window.dtype.kind == "c")
    if input.ndim not in (1, 2) or input.dtype.kind not in "fc":
        raise ShapeError(f"stft takes signals of 1 or 2 axes, not {_shown(input)}")
    if return_complex is None and not is_complex:
        raise ShapeError("stft of real values needs return_complex: True gives complex numbers")
    cut = _pieces("stft", input, n_fft, hop_length, win_length, window)
    if center:
        around = cut.size // 2
        pairs = [(0, 0)] * (input.ndim - 1) + [(around, around)]
        input = input.pad(pairs, mode=pad_mode)
    if cut.size > input.shape[-1]:
        raise ShapeError(f"stft: pieces of {cut.size} values of a signal of {input.shape[-1]}")
    frames = input.unfold(-1, cut.size, cut.hop)
    if cut.window is not None:
        frames = frames * cut.window
    norm = "ortho" if normalized else "backward"
    if is_complex and onesided:
        raise ShapeError("stft: complex signals have two sides, onesided must be False")
    is_half = not is_complex if onesided is None else onesided
    found = (transforms.rfft if is_half else transforms.fft)(frames, norm=norm).transpose(-1, -2)
    if return_complex or return_complex is None:
        return found
    return wrap(B.floats_of(found.uop), found._device)


def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal of which `stft` gives these transforms: pieces added up, over their windows."""
    from svod.tensor.fft import transforms

    if input.ndim not in (2, 3) or input.dtype.kind != "c":
        raise ShapeError(
            f"istft takes complex numbers of shape (frequencies, pieces) or (batch, frequencies, "
            f"pieces), not {_shown(input)}"
        )
    cut = _pieces("istft", input, n_fft, hop_length, win_length, window)
    is_half = (input.shape[-2] != cut.size) if onesided is None else onesided
    if return_complex and is_half:
        raise ShapeError("istft: a complex signal needs both sides, onesided=False")
    frequencies, count = input.shape[-2:]
    if frequencies != (cut.size // 2 + 1 if is_half else cut.size) or not count:
        raise ShapeError(f"istft: {input.shape} has no pieces of n_fft={cut.size}")
    norm = "ortho" if normalized else "backward"
    frames = input.transpose(-1, -2)
    if return_complex:
        frames = transforms.ifft(frames, norm=norm)
    else:
        frames = transforms.irfft(frames[..., : cut.size // 2 + 1], cut.size, norm=norm)
    frames = frames if cut.window is None else frames * cut.window
    ones = wrap(B.full((cut.size,), 1.0, _real_dtype(frames)), input._device)
    squares = ones if cut.window is None else cut.window * cut.window
    start = cut.size // 2 if center else 0
    whole = cut.size + cut.hop * (count - 1)
    wanted = whole - 2 * start if length is None else integer(length, "length")
    if wanted < 1:
        raise ShapeError(f"istft: a signal of {wanted} values")
    stop = min(start + wanted, whole)
    overlap = _added(squares.unsqueeze(0).expand(count, cut.size), cut.hop)[start:stop]
    _check_overlap(overlap)
    found = _added(frames, cut.hop)[..., start:stop] / overlap
    missing = wanted - (stop - start)
    return found.pad([(0, 0)] * (found.ndim - 1) + [(0, missing)]) if missing else found


def _pieces(
    name: str, input: Tensor, n_fft: Any, hop_length: Any, win_length: Any, window: Tensor | None
) -> _Pieces:
    size = integer(n_fft, "n_fft")
    if size < 1:
        raise ShapeError(f"{name}: n_fft is 1 or more, not {size}")
    hop = size // 4 if hop_length is None else integer(hop_length, "hop_length")
    wide = size if win_length is None else integer(win_length, "win_length")
    if hop < 1 or not 0 < wide <= size:
        raise ShapeError(f"{name}: hop_length={hop}, win_length={wide} with n_fft={size}")
    if name == "istft" and hop > wide:
        raise ShapeError(f"istft: windows of {wide} values do not meet at hop_length={hop}")
    if window is None:
        if wide == size:
            return _Pieces(size, hop, None)
        window = wrap(B.full((wide,), 1.0, _real_dtype(input)), input._device)
    if window.dtype.kind not in "fc":
        raise DTypeError(f"{name}: a window holds floats, not {window.dtype.name}")
    if window.shape != (wide,):
        raise ShapeError(f"{name}: a window of shape {window.shape} for win_length={wide}")
    before = (size - wide) // 2
    return _Pieces(size, hop, window.pad([(before, size - wide - before)]))


def _added(frames: Tensor, hop: int) -> Tensor:
    """Pieces (.., count, size) added up where they lie, hop apart."""
    if frames.dtype.kind == "c":
        return joined(*[_added(part, hop) for part in parts(frames)])
    *lead, count, size = frames.shape
    rows = -(-size // hop)
    axis = len(lead)
    flat = B.reshape(frames.uop, (prod(lead), count, size))
    flat = B.pad(flat, ((0, 0), (0, 0), (0, rows * hop - size)))
    steps = B.permute(B.reshape(flat, (prod(lead), count, rows, hop)), (0, 2, 1, 3))
    added = fold(_slanted(steps), O.ADD, (1,), False)
    total = (count - 1) * hop + size
    whole = B.reshape(added, (*lead, (count + rows - 1) * hop))
    return wrap(slice_axis(whole, axis, 0, total), frames._device)


def _slanted(steps: UOp) -> UOp:
    """Row r of (a, rows, count, hop) moved by r: rows one longer than they are read."""
    a, rows, count, hop = steps.shape
    wide = count + rows
    padded = B.pad(steps, ((0, 0), (0, 0), (0, rows), (0, 0)))
    flat = B.reshape(padded, (a, rows * wide, hop))
    return B.reshape(slice_axis(flat, 1, 0, rows * (wide - 1)), (a, rows, wide - 1, hop))


def _check_overlap(overlap: Tensor) -> None:
    """Windows must cover what is asked for; while a function is recorded there are no values."""
    if not is_traced(overlap.uop) and overlap.detach().abs().min().item() < SMALLEST:
        raise ShapeError("istft: the windows leave gaps: use a smaller hop_length or center=True")


def _real_dtype(x: Tensor) -> Any:
    return x.real.dtype if x.dtype.kind == "c" else x.dtype


def _shown(x: Tensor) -> str:
    return f"{x.dtype.name} of shape {x.shape}"


class Spectral(Core):
    """stft and istft."""

    __slots__ = ()

    def stft(self: Tensor, n_fft: int, *args: Any, **options: Any) -> Tensor:
        """The transforms of pieces of a signal: see `svod.stft`."""
        return stft(self, n_fft, *args, **options)

    def istft(self: Tensor, n_fft: int, *args: Any, **options: Any) -> Tensor:
        """The signal of its transforms: see `svod.istft`."""
        return istft(self, n_fft, *args, **options)
