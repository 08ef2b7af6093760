"""torch.nn.functional without losses: activations, norms, convolution, pooling, resampling."""

from __future__ import annotations

from tests.torch.table import (
    DT,
    FLOATS,
    ONE,
    WIDE,
    add,
    bad,
    distinct,
    each,
    ids,
    lit,
    mask,
    pos,
    special,
    x,
)  # fmt: skip

_NAN, _INF = float("nan"), float("inf")
F = {"_forms": "f"}

# -- activations -------------------------------------------------------------------------------

each(
    "relu relu6 selu silu mish logsigmoid hardsigmoid hardswish softsign tanhshrink",
    dtypes=FLOATS,
    _gradient_tolerance=10,
)
each("gelu", dtypes=FLOATS, edge=False)  # of inf in float32: inf; torch: NaN
add("gelu", special(), _dtypes=("float64",), _grad=False)
each("elu celu leaky_relu hardtanh softplus hardshrink softshrink", dtypes=FLOATS)
add("relu", lit(-1.0, 0.0, 2.0), _differences=False)
add("relu", x(3, 4), _dtypes=("int64",), _grad=False)
add(
    "relu6 hardtanh hardswish hardsigmoid softshrink hardshrink",
    lit(-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0),
    _differences=False,
    _gradient_tolerance=10,
)
add("gelu", x(3, 4), approximate="tanh")
add("elu celu", x(3, 4), 0.5, **F)
add("leaky_relu", x(3, 4), 0.3, **F)
add("hardtanh", x(3, 4), -0.5, 1.5, **F)
add("softplus", x(3, 4), 2.0, 1.0, _differences=False, **F)
add("hardshrink softshrink", x(3, 4), 0.8)
add("threshold", x(3, 4), 0.5, 7.0, _dtypes=FLOATS)
add("prelu", x(2, 3, 2), x(3), _dtypes=WIDE)
add("prelu", x(2, 3), x(1))
add("glu", x(3, 4), **F)
add("glu", x(4, 3), 0, **F)
add("softmax log_softmax softmin", x(3, 4), -1, _dtypes=FLOATS, **F)
add("softmax log_softmax softmin", x(2, 3, 4), 1, **F)
add("softmax log_softmax", x(3, 4), 0, dtype=DT("float64"), _dtypes=ONE, _grad=False)
add(
    "softmax log_softmax",
    lit(1000.0, 0.0, -_INF, 1.0, 1.0, 1.0, shape=(2, 3)),
    1,
    _differences=False,
)
add("softmax log_softmax", lit(_NAN, 0.0, -_INF, -_INF, _INF, 1.0, shape=(3, 2)), 1, _grad=False)
add("softmax log_softmax", x(0, 3), 1, _grad=False)
add("softmax log_softmax", x(), 0)
add("rrelu", x(3, 4))
add(
    "dropout alpha_dropout feature_alpha_dropout dropout2d dropout3d",
    x(2, 3, 4, 4),
    training=False,
    **F,
)
add("dropout1d", x(2, 3, 4), training=False, **F)
add("dropout", x(3, 4), 0.5, True, _values=False, _grad=False, **F)
add("dropout", x(3, 4), 1.0, True, _grad=False, **F)
add(
    "alpha_dropout feature_alpha_dropout dropout2d",
    x(2, 3, 4, 4),
    0.5,
    True,
    _values=False,
    _grad=False,
    **F,
)
add("gumbel_softmax", x(3, 4), _values=False, _grad=False, **F)
add("gumbel_softmax", x(3, 4), 0.5, True, _values=False, _grad=False, **F)
add("relu", x(3, 4), inplace=True, _grad=False, **F)

# -- layers ------------------------------------------------------------------------------------

add("linear", x(3, 4), x(2, 4), x(2), _dtypes=FLOATS, _tolerance=4, **F)
add("linear", x(4), x(2, 4), **F)
add("linear", x(2, 3, 4), x(2, 4), **F)
add("bilinear", x(3, 4), x(3, 2), x(5, 4, 2), x(5), **F)
add("layer_norm", x(3, 4), (4,), x(4), x(4), _dtypes=FLOATS, _tolerance=4, _gradient_tolerance=100)
add("layer_norm", x(2, 3, 4), (3, 4), eps=1e-3, _gradient_tolerance=100)
add("rms_norm", x(3, 4), (4,), x(4), 1e-5, _dtypes=WIDE)
add("rms_norm", x(3, 4), (4,))
add("group_norm", x(2, 6, 3), 3, x(6), x(6), _gradient_tolerance=100)
add("group_norm", x(2, 4, 2, 2), 2, _gradient_tolerance=100, _differences=False)
add("instance_norm", x(2, 3, 4), None, None, x(3), x(3), _gradient_tolerance=100, **F)
add("instance_norm", x(2, 3, 4, 2), _gradient_tolerance=100, _differences=False, **F)
add("instance_norm", x(2, 3, 4), x(3, grad=False), pos(3, grad=False), use_input_stats=False, **F)
add("batch_norm", x(4, 3), x(3, grad=False), pos(3, grad=False), x(3), x(3), **F)
add("batch_norm", x(2, 3, 4), x(3, grad=False), pos(3, grad=False), **F)
add("batch_norm", x(4, 3), None, None, x(3), x(3), True, _gradient_tolerance=100, **F)
add(
    "batch_norm",
    x(4, 3),
    x(3, grad=False),
    pos(3, grad=False),
    None,
    None,
    True,
    0.2,
    1e-3,
    _differences=False,
    _gradient_tolerance=100,
    **F,
)
add("local_response_norm", x(2, 5, 3), 3, **F)
add("local_response_norm", x(2, 4, 2, 2), 2, 0.01, 0.5, 2.0, **F)
add("normalize", x(3, 4), **F)
add("normalize", x(3, 4), 1.0, 0, **F)
add("normalize", lit(0.0, 0.0, 3.0, 4.0, shape=(2, 2)), _differences=False, **F)
add("cosine_similarity", x(3, 4), x(3, 4))
add("cosine_similarity", x(3, 4), x(4), 1)
add("cosine_similarity", x(3, 4), x(3, 4), 0, 1e-3)
add("cosine_similarity", lit(0.0, 0.0, shape=(1, 2)), lit(1.0, 2.0, shape=(1, 2)), _grad=False)
add("pairwise_distance", x(3, 4), x(3, 4))
add("pairwise_distance", x(3, 4), x(4), 1.0, 1e-6, True)
add("scaled_dot_product_attention", x(2, 3, 4), x(2, 5, 4), x(2, 5, 4), _dtypes=WIDE, **F)
add(
    "scaled_dot_product_attention", x(1, 2, 3, 4), x(1, 2, 3, 4), x(1, 2, 3, 4), is_causal=True, **F
)
add("scaled_dot_product_attention", x(2, 3, 4), x(2, 5, 4), x(2, 5, 4), x(3, 5), **F)
add(
    "scaled_dot_product_attention",
    x(2, 3, 4),
    x(2, 5, 4),
    x(2, 5, 4),
    mask(2, 3, 5),
    scale=0.7,
    **F,
)
add(
    "scaled_dot_product_attention",
    x(1, 4, 3, 4),
    x(1, 2, 3, 4),
    x(1, 2, 3, 4),
    enable_gqa=True,
    _differences=False,
    **F,
)
add("pixel_shuffle", x(1, 8, 2, 3), 2)
add("pixel_shuffle", x(4, 2, 3), 2)
add("pixel_unshuffle", x(1, 2, 4, 6), 2)
add("channel_shuffle", x(1, 6, 2, 2), 3)

# -- pad ---------------------------------------------------------------------------------------

add("pad", x(3, 4), (1, 2), _dtypes=("float32", "float64", "int64", "bool"), **F)
add("pad", x(3, 4), (1, 2, 0, 1), "constant", 2.5, **F)
add("pad", x(3, 4), (-1, 2, 0, -1), **F)
for mode in ("reflect", "replicate", "circular"):
    add("pad", x(1, 2, 5), (2, 1), mode, **F)
    add("pad", x(1, 2, 4, 5), (2, 1, 1, 2), mode, **F)
    add("pad", x(1, 1, 3, 4, 3), (1, 1, 2, 1, 0, 2), mode, _differences=False, **F)
add("pad", x(1, 2, 5), (4, 7), "replicate", **F)
add("pad", x(1, 2, 5), (-1, 2), "reflect", **F)

# -- convolution -------------------------------------------------------------------------------

add("conv1d", x(2, 3, 7), x(4, 3, 3), x(4), _dtypes=FLOATS, _tolerance=8, _differences=False)
add("conv1d", x(1, 2, 6), x(2, 2, 3), None, 2, 1)
add("conv1d", x(2, 6), x(2, 2, 3), padding="same")
add("conv1d", x(1, 2, 7), x(2, 2, 2), None, 1, 0, 2)
add("conv1d", x(1, 4, 6), x(4, 2, 3), groups=2)
add("conv2d", x(1, 2, 5, 6), x(3, 2, 3, 2), x(3), _differences=False)
add("conv2d", x(1, 2, 5, 6), x(3, 2, 3, 2), None, (2, 1), (1, 0), (1, 2), _differences=False)
add("conv2d", x(1, 4, 4, 4), x(4, 1, 3, 3), None, 1, "same", 1, 4, _differences=False)
add("conv2d", x(1, 2, 4, 4), x(3, 2, 3, 3), padding="valid")
add("conv3d", x(1, 2, 3, 4, 3), x(2, 2, 2, 2, 2), x(2), padding=1, _differences=False)
add("conv_transpose1d", x(1, 3, 5), x(3, 2, 3), x(2))
add("conv_transpose1d", x(1, 4, 5), x(4, 2, 3), None, 2, 1, 1, 2, 1)
add("conv_transpose2d", x(1, 2, 3, 4), x(2, 3, 3, 2), x(3), 2, 1, 1, _differences=False)
add("conv_transpose2d", x(1, 2, 3, 4), x(2, 3, 2, 2), dilation=2, _differences=False)
add("conv_transpose3d", x(1, 2, 2, 3, 2), x(2, 2, 2, 2, 2), stride=2, _differences=False)
add("unfold", x(1, 2, 4, 5), (2, 3), **F)
add("unfold", x(2, 5, 5), 3, 1, 1, 2, **F)
add("unfold", x(1, 1, 6, 6), 2, 2, **F)
add("fold", x(1, 8, 12), (4, 5), 2, **F)
add("fold", x(18, 9), (5, 5), 3, 1, 1, 2, **F)
add("fold", x(1, 4, 16), (6, 6), 2, 2, **F)

# -- pooling -----------------------------------------------------------------------------------

for n in (1, 2, 3):
    shape = (2, 2, 7) if n == 1 else (1, 2, 6, 7) if n == 2 else (1, 1, 4, 5, 4)
    small = n == 1
    add(f"max_pool{n}d", distinct(*shape), 2, _dtypes=("float32", "float64"), _differences=small)
    add(f"max_pool{n}d", distinct(*shape), 3, 2, 1, _differences=small)
    add(f"max_pool{n}d", distinct(*shape), 2, 2, 0, 1, True, _differences=False)
    add(f"max_pool{n}d", distinct(*shape), 2, 1, 0, 2, _differences=False)
    add(f"max_pool{n}d", distinct(*shape), 2, return_indices=True, _differences=False, **F)
    add(f"max_pool{n}d", distinct(*shape), 3, 2, 1, return_indices=True, _differences=False, **F)
    add(
        f"max_pool{n}d_with_indices adaptive_max_pool{n}d_with_indices",
        distinct(*shape),
        2,
        _differences=False,
        **F,
    )
    add(f"avg_pool{n}d", x(*shape), 2, _dtypes=FLOATS if n < 3 else WIDE, _differences=small, **F)
    add(f"avg_pool{n}d", x(*shape), 3, 2, 1, _differences=False, **F)
    add(f"avg_pool{n}d", x(*shape), 3, 2, 1, True, False, _differences=False, **F)
    add(f"avg_pool{n}d", x(*shape), 3, 2, 1, True, _differences=False, **F)
    add(f"adaptive_avg_pool{n}d", x(*shape), 2, _differences=small, **F)
    add(f"adaptive_avg_pool{n}d", x(*shape), 3, _differences=small, **F)
    add(f"adaptive_max_pool{n}d", distinct(*shape), 2, _differences=small, **F)
    add(f"adaptive_max_pool{n}d", distinct(*shape), 3, True, _differences=False, **F)
    add(f"lp_pool{n}d", pos(*shape), 2, 2, _differences=small, **F)
    add(f"lp_pool{n}d", pos(*shape), 3, 3, 2, _differences=False, **F)
add(
    "max_pool1d max_pool2d",
    lit(
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        shape=(1, 4, 4),
    ),
    2,
    _differences=False,
)
add("max_pool1d", lit(0.0, 0.0, -1.0, 3.0, 3.0, 3.0, shape=(1, 1, 6)), 3, 1, _differences=False)
add("avg_pool2d", x(1, 2, 6, 7), 2, divisor_override=3, _differences=False, **F)
add("adaptive_avg_pool2d", x(1, 2, 6, 7), (2, None), _differences=False, **F)
add("max_unpool1d", x(1, 2, 3), ids(1, 2, 5, 0, 3, 4, shape=(1, 2, 3)), 2, **F)
add("max_unpool1d", x(1, 2, 3), ids(1, 2, 5, 0, 3, 4, shape=(1, 2, 3)), 2, output_size=(7,), **F)
add("max_unpool2d", x(1, 1, 2, 2), ids(5, 6, 8, 11, shape=(1, 1, 2, 2)), 2, **F)
add("max_unpool3d", x(1, 1, 1, 2, 2), ids(5, 6, 8, 11, shape=(1, 1, 1, 2, 2)), 2, **F)
add(
    "fractional_max_pool2d",
    distinct(2, 2, 7, 6),
    2,
    (4, 3),
    None,
    False,
    pos(2, 2, 2, low=0, high=1, grad=False),
    _differences=False,
    **F,
)
add("fractional_max_pool2d fractional_max_pool2d_with_indices", distinct(1, 1, 8, 8), (2, 3), None,
    (0.5, 0.5), True, pos(1, 1, 2, low=0, high=1, grad=False), _differences=False, **F)  # fmt: skip
add("fractional_max_pool3d fractional_max_pool3d_with_indices", distinct(1, 2, 6, 5, 7), 2,
    (3, 2, 4), None, True, pos(1, 2, 3, low=0, high=1, grad=False),
    _differences=False, **F)  # fmt: skip

# -- resampling --------------------------------------------------------------------------------

for mode in ("nearest", "nearest-exact", "linear", "area"):
    add("interpolate", x(1, 2, 5), 8, None, mode, **F)
    add("interpolate", x(1, 2, 7), 3, None, mode, **F)
    add("interpolate", x(1, 2, 5), scale_factor=1.7, mode=mode, **F)
for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
    add(
        "interpolate",
        x(1, 2, 4, 5),
        (7, 3),
        None,
        mode,
        _dtypes=("float32", "float64", "float16"),
        _differences=False,
        **F,
    )
    add("interpolate", x(1, 1, 4, 3), scale_factor=(2, 1.5), mode=mode, **F)
    add(
        "interpolate",
        x(1, 1, 4, 3),
        scale_factor=2.3,
        mode=mode,
        recompute_scale_factor=True,
        _differences=False,
        **F,
    )
for mode in ("bilinear", "bicubic"):
    add("interpolate", x(1, 1, 4, 3), (7, 6), None, mode, True, **F)
    add(
        "interpolate", x(1, 1, 8, 9), (3, 4), None, mode, False, None, True, _differences=False, **F
    )
    add("interpolate", x(1, 1, 4, 5), (9, 7), None, mode, antialias=True, _differences=False, **F)
add("interpolate", x(1, 2, 5), 9, None, "linear", True, **F)
for mode in ("nearest", "trilinear", "area", "nearest-exact"):
    add("interpolate", x(1, 1, 3, 4, 2), (5, 3, 4), None, mode, _differences=False, **F)
add("interpolate", x(1, 1, 3, 4, 2), (5, 3, 4), None, "trilinear", True, _differences=False, **F)
add("upsample", x(1, 2, 4), 6, **F)
add("upsample", x(1, 2, 4, 4), None, 2, "bilinear", False, _differences=False, **F)
add("upsample_nearest", x(1, 2, 4, 4), (6, 6), _differences=False, **F)
add("upsample_bilinear", x(1, 2, 4, 4), (6, 6), _differences=False, **F)
for mode in ("bilinear", "nearest", "bicubic"):
    for border in ("zeros", "border", "reflection"):
        for align in (True, False):
            smooth = mode == "bilinear" and align and border == "zeros"
            places = x(2, 3, 2, 2, low=-1.6, high=1.6)
            add("grid_sample", x(2, 2, 4, 5), places, mode, border, align, _differences=smooth, **F)
for mode in ("bilinear", "nearest"):
    for border in ("zeros", "border", "reflection"):
        add(
            "grid_sample",
            x(1, 2, 3, 4, 3),
            x(1, 2, 2, 2, 3, low=-1.6, high=1.6),
            mode,
            border,
            False,
            _differences=False,
            **F,
        )
add(
    "grid_sample",
    x(1, 1, 3, 3),
    lit(_NAN, 0.0, 0.2, _INF, 1e9, 0.1, shape=(1, 1, 3, 2)),
    "bilinear",
    "zeros",
    False,
    _grad=False,
    **F,
)
add("affine_grid", x(2, 2, 3), (2, 1, 3, 4), False, **F)
add("affine_grid", x(2, 2, 3), (2, 1, 3, 4), True, **F)
add("affine_grid", x(1, 3, 4), (1, 1, 2, 3, 4), False, **F)

# -- refused -----------------------------------------------------------------------------------

bad("gelu", x(3), approximate="no", **F)
bad("glu", x(3), **F)
bad("glu", x(4), 3, **F)
bad("softmax log_softmax", x(3), 4)
bad("dropout", x(3), 1.5, **F)
bad("dropout2d alpha_dropout", x(2, 3, 4), -0.5, **F)
bad("prelu", x(2, 3), x(4))
bad("linear", x(3, 4), x(2, 5), **F)
bad("linear", x(3, 4), x(2, 4), x(3), **F)
bad("bilinear", x(3, 4), x(3, 2), x(5, 4, 3), **F)
bad("layer_norm", x(3, 4), (3,))
bad("rms_norm", x(3, 4), (3,))
bad("group_norm", x(2, 6, 3), 4)
bad("batch_norm", x(4, 3), x(4), pos(3), **F)
bad("batch_norm", x(1, 3), None, None, None, None, True, **F)
bad("instance_norm", x(2, 3, 1), **F)
bad("scaled_dot_product_attention", x(2, 3, 4), x(2, 5, 3), x(2, 5, 4), **F)
bad("pixel_shuffle", x(1, 6, 2, 2), 2)
bad("pixel_shuffle", x(2, 2), 2)
bad("pixel_unshuffle", x(1, 1, 3, 4), 2)
bad("channel_shuffle", x(1, 5, 2, 2), 2)
bad("pad", x(3, 4), (1,), **F)
bad("pad", x(3, 4), (1, 1, 1, 1, 1, 1), **F)
bad("pad", x(1, 2, 3), (3, 0), "reflect", **F)
bad("pad", x(1, 2, 3), (1, 1), "mirror", **F)
bad("pad", x(3), (-2, -2), **F)
bad("conv1d", x(1, 3, 7), x(4, 2, 3))
bad("conv1d", x(1, 3, 2), x(4, 3, 3))
bad("conv2d", x(1, 3, 7), x(4, 3, 3))
bad("conv2d", x(1, 3, 7, 7), x(4, 3, 3, 3), x(5))
bad("conv2d", x(1, 3, 7, 7), x(4, 3, 3, 3), None, 0)
bad("conv2d", x(1, 3, 7, 7), x(4, 3, 3, 3), None, 2, "same")
bad("conv2d", x(1, 3, 7, 7), x(4, 3, 3, 3), None, 1, -1)
bad("conv2d", x(1, 3, 7, 7), x(4, 3, 3, 3), groups=2)
bad("conv_transpose1d", x(1, 3, 5), x(2, 2, 3))
bad("max_pool2d", x(3, 4), 2)
bad("max_pool2d", x(1, 2, 4, 4), 2, 2, 2)
bad("max_pool2d", x(1, 2, 4, 4), 5)
bad("max_pool2d", x(1, 2, 4, 4), 0)
bad("max_pool1d", x(1, 2, 4), (2, 2))
bad("avg_pool2d", x(1, 2, 4, 4), 2, 2, 2, **F)
bad("avg_pool2d", x(1, 2, 4, 4), 2, divisor_override=0, **F)
bad("adaptive_avg_pool2d", x(1, 2, 4, 4), (2, 2, 2), **F)
bad("max_unpool1d", x(1, 2, 3), ids(1, 2, shape=(1, 2)), 2, **F)
bad("max_unpool1d", x(1, 2, 3), ids(1, 2, 5, 0, 3, 4, shape=(1, 2, 3)), 2, output_size=(20,), **F)
bad("fractional_max_pool2d", x(1, 1, 4, 4), 2, **F)
bad("fractional_max_pool2d", x(1, 1, 4, 4), 2, (9, 9), **F)
bad("unfold", x(4, 4), 2, **F)
bad("fold", x(1, 8, 11), (4, 5), 2, **F)
bad("fold", x(1, 7, 12), (4, 5), 2, **F)
bad("interpolate", x(1, 2, 5), **F)
bad("interpolate", x(1, 2, 5), 3, 2, **F)
bad("interpolate", x(1, 2, 5), 3, None, "no", **F)
bad("interpolate", x(1, 2, 5), 3, None, "bilinear", **F)
bad("interpolate", x(1, 2, 5), 3, None, "nearest", True, **F)
bad("interpolate", x(1, 2, 5), (3, 3), **F)
bad("interpolate", x(1, 2, 5), 0, **F)
bad("interpolate", x(2, 5), 3, **F)
bad("interpolate", x(1, 2, 5), 3, None, "linear", antialias=True, **F)
bad("grid_sample", x(1, 2, 4, 4), x(1, 3, 3, 3), **F)
bad("grid_sample", x(1, 2, 4, 4), x(2, 3, 3, 2), **F)
bad("grid_sample", x(1, 2, 4, 4), x(1, 3, 3, 2), "no", **F)
bad("grid_sample", x(1, 2, 4, 4), x(1, 3, 3, 2), "bilinear", "no", **F)
bad("affine_grid", x(2, 2, 3), (3, 1, 3, 4), **F)
bad("affine_grid", x(2, 3, 3), (2, 1, 3, 4), **F)
bad("affine_grid", x(2, 2, 3), (2, 1, 3), **F)
bad("affine_grid", x(2, 2, 3), (2, 1, 0, 4), **F)
bad("local_response_norm", x(2, 3), 2, **F)
bad("rrelu", x(3), 0.5, 0.1)
bad("cosine_similarity", x(3, 4), x(3, 5))
bad("pairwise_distance", x(3, 4), x(3, 5))
bad("dropout1d", x(3), **F)
bad("relu", None, **F)
bad("relu", x(3), False, 1, **F)
