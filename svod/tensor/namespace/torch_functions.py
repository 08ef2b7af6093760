"""Functions of the ``svod`` namespace that torch has and the array API standard has not.

Most are a method called with its tensor as the first argument, which may also be named ``input``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from svod.reference.docstrings import describe_one
from svod.tensor.complex import conversions
from svod.tensor.core.tensor_core import spelled
from svod.tensor.fft import stft
from svod.tensor.layers import ctc_loss, distances, interpolation, stochastic, unpooling
from svod.tensor.linalg import householder, lu
from svod.tensor.linalg import linear_equations as matrices
from svod.tensor.namespace import signal_windows
from svod.tensor.namespace.method_functions import forward
from svod.tensor.namespace.torch_strides import LAYOUTS
from svod.tensor.ops import assembly, numeric, statistics
from svod.tensor.special import special_methods
from svod.tensor.tensor import Tensor

# Names that torch offers both as a method and as a function.
_METHODS = (
    "absolute adaptive_avg_pool1d adaptive_max_pool1d addbmm addcdiv addcmul addmm addmv addr "
    "adjoint allclose aminmax angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh "
    "argwhere as_strided baddbmm bitwise_not channel_shuffle cholesky cholesky_inverse "
    "cholesky_solve clamp_max clamp_min clone conj conj_physical corrcoef cosine_embedding_loss "
    "cosine_similarity cov cross deg2rad det detach diagflat diagonal_scatter digamma dist div "
    "dsplit eq erfc erfinv fix fliplr flipud float_power frac frexp gcd ge ger gt hardshrink "
    "heaviside hinge_embedding_loss histc histogram hsplit i0 igamma igammac index_copy "
    "index_fill index_put index_reduce inverse is_complex is_floating_point is_nonzero "
    "is_same_size is_signed isneginf isposinf isreal lcm ldexp le lgamma logaddexp2 logdet logit "
    "lt margin_ranking_loss masked_scatter matrix_exp matrix_power mode msort mul mvlgamma "
    "nan_to_num nanmean nanmedian nanquantile nansum narrow_copy ne neg nextafter nonzero_static "
    "get_device numel pairwise_distance pinverse pixel_shuffle pixel_unshuffle poisson_nll_loss "
    "put rad2deg renorm resolve_conj resolve_neg rsub select select_scatter sgn sinc "
    "slice_scatter slogdet split_with_sizes std_mean sub swapdims t threshold "
    "triplet_margin_loss true_divide unflatten unique_consecutive var_mean vdot vsplit xlogy"
)
# Methods that change their tensor and are functions of torch too.
_IN_PLACE = (
    "abs acos acosh addmv arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh ceil "
    "celu clamp clamp_max clamp_min clip cos cosh deg2rad detach erf erfc exp exp2 expm1 fill fix "
    "floor frac gcd i0 index_put lcm ldexp log log10 log1p log2 logit nan_to_num neg negative "
    "rad2deg reciprocal relu resize_as round rsqrt selu sigmoid sin sinc sinh sqrt square tan tanh "
    "threshold trunc xlogy zero"
)


def real(input: Tensor) -> Tensor:
    """The real part; a real number is its own."""
    return input.real


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of several matrices, from the left."""
    found = matrices[0]
    for m in matrices[1:]:
        found = found.mm(m)
    return found


def lu_(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """What ``lu_factor`` gives, or with ``get_infos`` what ``lu_factor_ex`` gives."""
    found = lu.lu_factor_ex(A, pivot=pivot, check_errors=not get_infos)
    return tuple(found) if get_infos else tuple(found[:2])


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """The x with A @ x = b, where LU_data and LU_pivots are A's factorisation."""
    return lu.lu_solve(LU_data, LU_pivots, b)


def as_tensor(data: Any, dtype: Any = None, device: str | None = None) -> Tensor:
    """The data as a tensor; a tensor is returned as it is."""
    if isinstance(data, Tensor):
        return data.to(dtype=dtype, device=device)
    return Tensor(data, dtype=dtype, device=device)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **LAYOUTS,
    **{
        name: getattr(assembly, name)
        for name in [
            "atleast_1d",
            "atleast_2d",
            "atleast_3d",
            "block_diag",
            "cartesian_prod",
            "column_stack",
            "combinations",
            "dstack",
            "hstack",
            "row_stack",
            "scalar_tensor",
            "tril_indices",
            "triu_indices",
            "unravel_index",
            "vander",
            "vstack",
        ]
    },
    **{
        f"{name}_window": getattr(signal_windows, f"{name}_window")
        for name in ("bartlett", "blackman", "hamming", "hann", "kaiser")
    },
    "range": assembly.range_,
    "bucketize": statistics.bucketize,
    "isin": statistics.isin,
    "trapezoid": statistics.trapezoid,
    "trapz": statistics.trapezoid,
    "cumulative_trapezoid": statistics.cumulative_trapezoid,
    "gradient": statistics.gradient,
    "cdist": distances.cdist,
    "pdist": distances.pdist,
    "bilinear": unpooling.bilinear,
    "ctc_loss": ctc_loss.ctc_loss,
    "stft": stft.stft,
    "istft": stft.istft,
    "polygamma": special_methods.polygamma,
    "promote_types": numeric.promote_types,
    "real": real,
    "complex": conversions.complex,
    "polar": conversions.polar,
    "view_as_real": conversions.view_as_real,
    "view_as_complex": conversions.view_as_complex,
    "rrelu": stochastic.rrelu,
    "alpha_dropout": stochastic.alpha_dropout,
    "feature_alpha_dropout": stochastic.feature_alpha_dropout,
    "lu": lu_,
    "lu_solve": lu_solve,
    "lu_unpack": lu.lu_unpack,
    "geqrf": householder.geqrf,
    "ormqr": householder.ormqr,
    "svd_lowrank": householder.svd_lowrank,
    "pca_lowrank": householder.pca_lowrank,
    "triangular_solve": matrices.triangular_solve,
    "hash_tensor": numeric.hash_tensor,
    "histogramdd": statistics.histogramdd,
    "grid_sampler_2d": interpolation.grid_sampler,
    "grid_sampler_3d": interpolation.grid_sampler,
    "chain_matmul": chain_matmul,
    "as_tensor": as_tensor,
}
TORCH_NAMES: dict[str, Callable[..., Any]] = {
    **{name: forward(name, name) for name in _METHODS.split()},
    **{f"{name}_": forward(f"{name}_", f"{name}_") for name in _IN_PLACE.split()},
    "unsafe_chunk": forward("unsafe_chunk", "chunk"),
    "unsafe_split": forward("unsafe_split", "split"),
    **{name: spelled(function) for name, function in _FUNCTIONS.items()},
}

for _name in (  # functions written above that torch has as methods too
    *("as_strided_scatter", "geqrf", "hash_tensor", "lu", "lu_solve", "ormqr", "triangular_solve"),
    *("unsafe_chunk", "unsafe_split"),
):
    setattr(Tensor, _name, TORCH_NAMES[_name])
    describe_one(TORCH_NAMES[_name], "svod.Tensor", _name)
