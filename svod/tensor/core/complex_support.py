"""Which public functions take complex tensors; ``public_functions`` refuses them to the others.

So a function for real numbers is never applied to complex ones by accident: whoever makes one that
is right for both adds its name here. Names are those of functions and methods alike.
"""

from __future__ import annotations

from typing import Final

_FACTS = (
    "shape dtype device ndim size numel nelement dim ndimension itemsize element_size nbytes "
    "is_realized graph realize prepare contiguous is_contiguous clone data to to_device cpu "
    "numpy array_view copyin item tolist assign copy_ fill_ zero_ become "
    "is_floating_point is_complex is_same_size is_nonzero from_numpy from_dlpack cast astype "
    "type type_as bool requires_grad requires_grad_ is_leaf grad detach detach_ backward "
    "get_rng_state initial_seed manual_seed set_rng_state"
)
_MOVEMENT = (
    "T mT t reshape view view_as reshape_as flatten ravel unflatten squeeze unsqueeze expand "
    "broadcast_to expand_as permute transpose swapaxes swapdims movedim moveaxis shrink "
    "narrow pad flip fliplr flipud rot90 roll repeat tile repeat_interleave tril triu "
    "diagonal diag diag_embed unfold hsplit vsplit dsplit split_with_sizes select "
    "narrow_copy diagflat diff sum_to_size as_strided new_empty new_tensor cat stack split "
    "chunk tensor_split unbind squeeze_ unsqueeze_ t_ transpose_ swapaxes_ swapdims_ full "
    "zeros ones empty arange linspace eye full_like zeros_like ones_like new_full new_zeros "
    "new_ones rand randn randint randperm"
)
_ELEMENTS = (
    "gather take_along_dim index_select take masked_select nonzero argwhere scatter "
    "scatter_add index_add index_copy index_fill index_put scatter_reduce masked_scatter "
    "masked_fill where diagonal_scatter select_scatter slice_scatter put "
    "channel_shuffle pixel_shuffle pixel_unshuffle fill_diagonal_ embedding fold tanhshrink "
    "softsign silu ldexp renorm normalize l1_loss mse_loss conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d conv_transpose3d bilinear pairwise_distance triplet_margin_loss "
    "triplet_margin_with_distance_loss nonzero_static normal_ uniform_ alpha_dropout "
    "feature_alpha_dropout rms_norm logaddexp logcumsumexp"
)
_ARITHMETIC = (
    "add sub mul multiply subtract rsub neg negative positive square lerp addcmul eq ne "
    "not_equal equal logical_and logical_or logical_xor logical_not deg2rad rad2deg sum mean "
    "any all count_nonzero cumsum trace nansum nanmean matmul dot mm bmm mv addmm addmv addr "
    "baddbmm addbmm linear outer ger inner tensordot kron cross matrix_power "
    "det slogdet inverse pinverse cholesky cholesky_solve cholesky_inverse qr svd matrix_exp"
)
_FORMULAS = (
    "conj conj_physical resolve_conj resolve_neg adjoint abs absolute angle sign sgn exp exp2 "
    "expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh arcsin arccos arctan arcsinh arccosh arctanh sigmoid sinc round nan_to_num "
    "div divide true_divide pow float_power addcdiv isnan isinf isfinite isreal is_signed isclose "
    "allclose prod cumprod var std var_mean std_mean norm dist vdot vecdot logdet real imag "
    "complex polar view_as_real view_as_complex H mH stft istft"
)
_FUNCTIONS = (
    "asarray as_tensor tensor astype atleast_1d atleast_2d atleast_3d block_diag broadcast_arrays "
    "broadcast_tensors cartesian_prod chain_matmul column_stack combinations concat concatenate "
    "cumulative_sum cumulative_prod cumulative_trapezoid dstack einsum empty_like expand_dims "
    "gradient hstack isin is_tensor matrix_transpose meshgrid permute_dims result_type can_cast "
    "finfo row_stack scalar_tensor take_along_axis trapezoid trapz unique_all unique_counts "
    "unique_inverse unique_values unstack vander vstack repeat rand_like randn_like "
    "inv solve eigh eigvalsh eig eigvals svdvals pinv matrix_rank matrix_norm vector_norm lstsq "
    "multi_dot solve_triangular cond lu lu_ lu_factor lu_factor_ex lu_unpack lu_solve inv_ex "
    "solve_ex cholesky_ex geqrf householder_product ormqr svd_lowrank pca_lowrank tensorinv "
    "float double half bfloat16 int long short char byte softmax log_softmax softmin logsumexp cov "
    "corrcoef tensorsolve vander triangular_solve alias_copy as_strided_scatter empty_strided "
    "empty_permuted new_empty_strided fill constant_pad_nd resize resize_as cfloat cdouble "
    "custom_function realize_batch prepare_batch jit decorate plan grad value_and_grad shard"
)
TAKES_COMPLEX: Final = frozenset(
    f"{_FACTS} {_MOVEMENT} {_ELEMENTS} {_ARITHMETIC} {_FORMULAS} {_FUNCTIONS}".split()
)
# all of whose functions take them, or hand them to functions that are guarded themselves
MODULES: Final = (
    "svod.tensor.complex.", "svod.tensor.core.complex_parts", "svod.tensor.fft.transforms",
    "svod.tensor.fft.stft", "svod.nn.activations",
)  # fmt: skip


def takes_complex(name: str) -> bool:
    """Whether a function takes complex tensors; a form in place or of a copy does as its base."""
    forms = (name, name.removesuffix("_"), name.removesuffix("_copy"), name.removeprefix("unsafe_"))
    return any(form in TAKES_COMPLEX for form in forms)
