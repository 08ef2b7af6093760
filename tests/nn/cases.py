"""Modules, optimizers and schedules beside torch's: the same description runs on both.

``python -m tests.nn.cases`` (with torch) writes what torch finds to ``recorded/nn.npz``; the tests
compare with that file, and the file with torch where it is installed.
"""

from __future__ import annotations

import json
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parent / "recorded" / "nn.npz"
STEPS = 6
RECURRENT = ("RNN", "LSTM", "GRU")
REDUCTIONS = ("none", "mean", "sum")


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


INTEGERS = np.array([[1, 2, 0], [3, 3, 1]])
SIGNS = np.where(normal(3, 4, seed=9) > 0, np.float32(1), np.float32(-1))
SHARE = np.exp(normal(3, 4)) / np.exp(normal(3, 4)).sum(1, keepdims=True)

# name: arguments, options, inputs; the class has this name in both libraries
CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...]]] = {
    "linear": ("Linear", (4, 3), {}, (normal(2, 4),)),
    "linear without bias": ("Linear", (4, 3), {"bias": False}, (normal(2, 5, 4),)),
    "bilinear": ("Bilinear", (4, 3, 2), {}, (normal(5, 4), normal(5, 3))),
    "conv1d": ("Conv1d", (3, 4, 3), {"stride": 2, "padding": 1}, (normal(2, 3, 8),)),
    "conv2d": ("Conv2d", (2, 4, 3), {"padding": 1, "groups": 2}, (normal(2, 2, 6, 5),)),
    "same conv2d": ("Conv2d", (2, 3, (3, 2)), {"padding": "same"}, (normal(1, 2, 5, 6),)),
    "circular conv2d": (
        "Conv2d",
        (2, 3, 3),
        {"padding": 1, "padding_mode": "circular"},
        (normal(1, 2, 5, 6),),
    ),
    "conv3d": ("Conv3d", (2, 3, 2), {"dilation": 2}, (normal(1, 2, 4, 4, 4),)),
    "transposed 1d": ("ConvTranspose1d", (3, 2, 3), {"stride": 2}, (normal(2, 3, 4),)),
    "transposed 2d": (
        "ConvTranspose2d",
        (4, 2, 3),
        {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2},
        (normal(1, 4, 3, 3),),
    ),
    "transposed 3d": ("ConvTranspose3d", (2, 2, 2), {}, (normal(1, 2, 2, 3, 2),)),
    "batch norm 1d": ("BatchNorm1d", (4,), {}, (normal(6, 4),)),
    "batch norm 2d": ("BatchNorm2d", (3,), {"momentum": 0.3}, (normal(2, 3, 4, 4),)),
    "batch norm 3d": ("BatchNorm3d", (2,), {"affine": False}, (normal(2, 2, 2, 3, 2),)),
    "average of batches": ("BatchNorm1d", (4,), {"momentum": None}, (normal(6, 4),)),
    "layer norm": ("LayerNorm", ((3, 4),), {}, (normal(2, 3, 4),)),
    "layer norm without bias": ("LayerNorm", (4,), {"bias": False}, (normal(2, 4),)),
    "rms norm": ("RMSNorm", (4,), {"eps": 1e-6}, (normal(2, 3, 4),)),
    "group norm": ("GroupNorm", (2, 4), {}, (normal(2, 4, 3),)),
    "instance norm": ("InstanceNorm2d", (3,), {"affine": True}, (normal(2, 3, 4, 4),)),
    "embedding": ("Embedding", (5, 3), {"padding_idx": 0}, (INTEGERS,)),
    "max pool": ("MaxPool2d", (3,), {"stride": 2, "padding": 1}, (normal(1, 2, 6, 6),)),
    "avg pool": ("AvgPool2d", (3, 2), {"count_include_pad": False}, (normal(1, 2, 6, 6),)),
    "adaptive avg pool": ("AdaptiveAvgPool2d", ((2, 3),), {}, (normal(1, 2, 5, 6),)),
    "adaptive max pool": ("AdaptiveMaxPool1d", (2,), {}, (normal(1, 2, 5),)),
    "prelu": ("PReLU", (3,), {}, (normal(2, 3, 4),)),
    "gelu": ("GELU", (), {"approximate": "tanh"}, (normal(3, 4),)),
    "leaky relu": ("LeakyReLU", (0.2,), {}, (normal(3, 4),)),
    "softmax": ("Softmax", (), {"dim": 1}, (normal(3, 4),)),
    "glu": ("GLU", (), {}, (normal(3, 4),)),
    "cross entropy": (
        "CrossEntropyLoss",
        (),
        {"label_smoothing": 0.1},
        (normal(3, 4), np.array([0, 3, 1])),
    ),
    "smooth l1": ("SmoothL1Loss", (), {"beta": 0.5}, (normal(3, 4), normal(3, 4, seed=1))),
    "bce": ("BCEWithLogitsLoss", (), {}, (normal(3, 4), np.abs(np.tanh(normal(3, 4, seed=1))))),
    "rnn": ("RNN", (3, 4), {"num_layers": 2, "nonlinearity": "relu"}, (normal(5, 2, 3),)),
    "lstm": ("LSTM", (3, 4), {"num_layers": 2, "bidirectional": True}, (normal(4, 2, 3),)),
    "lstm batch first": ("LSTM", (3, 4), {"batch_first": True}, (normal(2, 4, 3),)),
    "gru": ("GRU", (3, 4), {}, (normal(5, 2, 3), normal(1, 2, 4))),
    "lstm of one sequence": ("LSTM", (3, 4), {}, (normal(5, 3),)),
    "lstm cell": ("LSTMCell", (3, 4), {}, (normal(2, 3),)),
    "gru cell": ("GRUCell", (3, 4), {"bias": False}, (normal(2, 3), normal(2, 4))),
    "attention": (
        "MultiheadAttention",
        (8, 2),
        {"batch_first": True},
        (normal(2, 3, 8), normal(2, 5, 8), normal(2, 5, 8, seed=1)),
    ),
    "attention of other sizes": (
        "MultiheadAttention",
        (8, 2),
        {"kdim": 6, "vdim": 4},
        (normal(3, 2, 8), normal(5, 2, 6), normal(5, 2, 4)),
    ),
    # further options
    "conv1d circular": (
        "Conv1d",
        (2, 3, 3),
        {"padding": 1, "padding_mode": "circular"},
        (normal(2, 2, 6),),
    ),
    "conv2d reflected": (
        "Conv2d",
        (2, 3, 3),
        {"padding": 1, "padding_mode": "reflect"},
        (normal(1, 2, 5, 6),),
    ),
    "conv3d replicated": (
        "Conv3d",
        (1, 2, 3),
        {"padding": 1, "padding_mode": "replicate"},
        (normal(1, 1, 3, 4, 3),),
    ),
    "conv2d of one image": ("Conv2d", (2, 3, 3), {"stride": 2}, (normal(2, 6, 5),)),
    "conv2d depthwise": ("Conv2d", (4, 8, 3), {"groups": 4, "bias": False}, (normal(2, 4, 5, 5),)),
    "transposed 1d groups": (
        "ConvTranspose1d",
        (4, 2, 3),
        {"stride": 3, "groups": 2, "dilation": 2},
        (normal(2, 4, 4),),
    ),
    "transposed 3d stride": (
        "ConvTranspose3d",
        (2, 3, 2),
        {"stride": 2, "padding": 1},
        (normal(1, 2, 3, 2, 3),),
    ),
    "batch norm of lines": ("BatchNorm1d", (4,), {"eps": 1e-3}, (normal(3, 4, 5),)),
    "batch norm without running values": (
        "BatchNorm2d",
        (3,),
        {"track_running_stats": False},
        (normal(2, 3, 4, 4),),
    ),
    "batch norm without bias": ("BatchNorm1d", (4,), {"bias": False}, (normal(6, 4),)),
    "instance norm 1d": ("InstanceNorm1d", (3,), {}, (normal(2, 3, 5),)),
    "instance norm running": (
        "InstanceNorm1d",
        (3,),
        {"track_running_stats": True},
        (normal(2, 3, 5),),
    ),
    "instance norm running affine": (
        "InstanceNorm2d",
        (3,),
        {"track_running_stats": True, "affine": True, "momentum": 0.3},
        (normal(2, 3, 4, 4),),
    ),
    "instance norm 3d": ("InstanceNorm3d", (2,), {"affine": True}, (normal(2, 2, 2, 3, 2),)),
    "group norm of images": (
        "GroupNorm",
        (3, 6),
        {"eps": 1e-3, "affine": False},
        (normal(2, 6, 3, 3),),
    ),
    "layer norm plain": ("LayerNorm", (4,), {"elementwise_affine": False}, (normal(2, 3, 4),)),
    "rms norm plain": ("RMSNorm", ((3, 4),), {"elementwise_affine": False}, (normal(2, 3, 4),)),
    "local response": ("LocalResponseNorm", (3,), {"alpha": 0.1}, (normal(2, 5, 4, 4),)),
    "embedding of long rows": ("Embedding", (5, 3), {"max_norm": 0.5}, (INTEGERS,)),
    "embedding padded at the end": (
        "Embedding",
        (5, 3),
        {"padding_idx": -1},
        (np.array([4, 0, 4]),),
    ),
    # pooling
    "max pool 1d": ("MaxPool1d", (2,), {"dilation": 2}, (normal(1, 2, 9),)),
    "max pool 3d": ("MaxPool3d", (2,), {"ceil_mode": True}, (normal(1, 2, 3, 5, 4),)),
    "max pool places": ("MaxPool2d", (2,), {"return_indices": True}, (normal(1, 2, 6, 6),)),
    "avg pool 1d": ("AvgPool1d", (3,), {"stride": 2, "padding": 1}, (normal(1, 2, 9),)),
    "avg pool 3d": ("AvgPool3d", (2,), {"divisor_override": 3}, (normal(1, 2, 4, 4, 4),)),
    "avg pool up": ("AvgPool2d", (3,), {"stride": 2, "ceil_mode": True}, (normal(1, 2, 6, 6),)),
    "adaptive avg pool 1d": ("AdaptiveAvgPool1d", (3,), {}, (normal(1, 2, 7),)),
    "adaptive avg pool 3d": ("AdaptiveAvgPool3d", ((2, 1, 2),), {}, (normal(1, 2, 4, 3, 5),)),
    "adaptive max pool 2d": ("AdaptiveMaxPool2d", ((2, None),), {}, (normal(1, 2, 5, 3),)),
    "adaptive max places": (
        "AdaptiveMaxPool2d",
        (2,),
        {"return_indices": True},
        (normal(1, 2, 5, 3),),
    ),
    "lp pool": ("LPPool2d", (2.0, 2), {}, (np.abs(normal(1, 2, 4, 4)),)),
    # activations
    "relu": ("ReLU", (), {}, (normal(3, 4),)),
    "relu6": ("ReLU6", (), {}, (normal(3, 4) * 6,)),
    "sigmoid": ("Sigmoid", (), {}, (normal(3, 4),)),
    "tanh": ("Tanh", (), {}, (normal(3, 4),)),
    "silu": ("SiLU", (), {}, (normal(3, 4),)),
    "elu": ("ELU", (0.5,), {}, (normal(3, 4),)),
    "selu": ("SELU", (), {}, (normal(3, 4),)),
    "celu": ("CELU", (0.7,), {}, (normal(3, 4),)),
    "softplus": ("Softplus", (2.0,), {"threshold": 1.0}, (normal(3, 4),)),
    "log sigmoid": ("LogSigmoid", (), {}, (normal(3, 4),)),
    "mish": ("Mish", (), {}, (normal(3, 4),)),
    "hardtanh": ("Hardtanh", (-0.5, 0.8), {}, (normal(3, 4),)),
    "hardsigmoid": ("Hardsigmoid", (), {}, (normal(3, 4) * 4,)),
    "hardswish": ("Hardswish", (), {}, (normal(3, 4) * 4,)),
    "softsign": ("Softsign", (), {}, (normal(3, 4),)),
    "tanhshrink": ("Tanhshrink", (), {}, (normal(3, 4),)),
    "hardshrink": ("Hardshrink", (0.3,), {}, (normal(3, 4),)),
    "softshrink": ("Softshrink", (0.3,), {}, (normal(3, 4),)),
    "threshold": ("Threshold", (0.1, 7.0), {}, (normal(3, 4),)),
    "softmin": ("Softmin", (), {"dim": 0}, (normal(3, 4),)),
    "log softmax": ("LogSoftmax", (1,), {}, (normal(3, 4),)),
    "softmax of channels": ("Softmax2d", (), {}, (normal(1, 3, 2, 2),)),
    "prelu of all": ("PReLU", (), {"init": 0.1}, (normal(2, 3),)),
    # losses
    "cross entropy ignoring": (
        "CrossEntropyLoss",
        (),
        {"ignore_index": 3, "reduction": "sum"},
        (normal(3, 4), np.array([0, 3, 1])),
    ),
    "cross entropy of images": (
        "CrossEntropyLoss",
        (),
        {"reduction": "none"},
        (normal(2, 4, 3), np.array([[0, 3, 1], [2, 2, 0]])),
    ),
    "cross entropy of shares": (
        "CrossEntropyLoss",
        (),
        {},
        (normal(3, 4), np.abs(normal(3, 4, seed=2))),
    ),
    "nll": ("NLLLoss", (), {}, (normal(3, 4), np.array([0, 3, 1]))),
    "mse": ("MSELoss", (), {}, (normal(3, 4), normal(3, 4, seed=1))),
    "mse older": ("MSELoss", (), {"size_average": False}, (normal(3, 4), normal(3, 4, seed=1))),
    "l1": ("L1Loss", (), {"reduction": "sum"}, (normal(3, 4), normal(3, 4, seed=1))),
    "huber": ("HuberLoss", (), {"delta": 0.4}, (normal(3, 4), normal(3, 4, seed=1))),
    "bce plain": ("BCELoss", (), {}, (SHARE, np.float32([[0, 1, 1, 0]] * 3))),
    "kl": ("KLDivLoss", (), {"reduction": "batchmean"}, (np.log(SHARE), SHARE[::-1].copy())),
    "kl of logs": (
        "KLDivLoss",
        (),
        {"reduction": "sum", "log_target": True},
        (np.log(SHARE), np.log(SHARE[::-1])),
    ),
    "hinge": ("HingeEmbeddingLoss", (), {"margin": 0.5}, (normal(3, 4), SIGNS)),
    "soft margin": ("SoftMarginLoss", (), {}, (normal(3, 4), SIGNS)),
    "ranking": ("MarginRankingLoss", (), {"margin": 0.1}, (normal(4), normal(4, seed=1), SIGNS[0])),
    "cosine embedding": (
        "CosineEmbeddingLoss",
        (),
        {"margin": 0.1},
        (normal(4, 3), normal(4, 3, seed=1), SIGNS[0]),
    ),
    "multi margin": ("MultiMarginLoss", (), {"margin": 0.7}, (normal(3, 4), np.array([0, 3, 1]))),
    "multi label soft": (
        "MultiLabelSoftMarginLoss",
        (),
        {},
        (normal(3, 4), np.float32([[0, 1, 1, 0]] * 3)),
    ),
    "poisson": (
        "PoissonNLLLoss",
        (),
        {"full": True},
        (normal(3, 4), np.abs(normal(3, 4, seed=1)) * 3),
    ),
    "gaussian": (
        "GaussianNLLLoss",
        (),
        {"full": True},
        (normal(3, 4), normal(3, 4, seed=1), np.abs(normal(3, 4, seed=2)) + 0.1),
    ),
    "triplet": (
        "TripletMarginLoss",
        (),
        {"swap": True},
        (normal(3, 4), normal(3, 4, seed=1), normal(3, 4, seed=2)),
    ),
    # shapes
    "pixel shuffle": ("PixelShuffle", (2,), {}, (normal(1, 8, 2, 3),)),
    "pixel unshuffle": ("PixelUnshuffle", (2,), {}, (normal(1, 2, 4, 6),)),
    "channel shuffle": ("ChannelShuffle", (2,), {}, (normal(1, 4, 2, 2),)),
    "unfold": ("Unfold", (2,), {"padding": 1, "stride": 2}, (normal(1, 2, 4, 5),)),
    "fold": ("Fold", ((4, 5), 2), {"padding": 1, "stride": 2}, (normal(1, 8, 9),)),
    "upsample": ("Upsample", (), {"scale_factor": 2, "mode": "bilinear"}, (normal(1, 2, 3, 4),)),
    "upsample nearest": ("UpsamplingNearest2d", (), {"size": (5, 6)}, (normal(1, 2, 3, 4),)),
    "upsample bilinear": ("UpsamplingBilinear2d", (), {"scale_factor": 2}, (normal(1, 2, 3, 4),)),
    "flatten": ("Flatten", (), {"start_dim": 0, "end_dim": 1}, (normal(2, 3, 4),)),
    "unflatten": ("Unflatten", (1, (2, 3)), {}, (normal(2, 6),)),
    "constant pad": ("ConstantPad2d", ((1, 2, 0, 1), 3.5), {}, (normal(1, 2, 3, 4),)),
    "reflection pad": ("ReflectionPad1d", (2,), {}, (normal(1, 2, 5),)),
    "replication pad": ("ReplicationPad3d", (1,), {}, (normal(1, 1, 2, 3, 2),)),
    "circular pad": ("CircularPad2d", (1,), {}, (normal(1, 2, 3, 4),)),
    "zero pad": ("ZeroPad1d", ((1, 2),), {}, (normal(1, 2, 3),)),
    "cosine similarity": ("CosineSimilarity", (), {"dim": 1}, (normal(3, 4), normal(3, 4, seed=1))),
    "pairwise distance": (
        "PairwiseDistance",
        (),
        {"keepdim": True},
        (normal(3, 4), normal(3, 4, seed=1)),
    ),
    # recurrent
    "rnn both ways": (
        "RNN",
        (3, 4),
        {"bidirectional": True, "batch_first": True},
        (normal(2, 5, 3),),
    ),
    "rnn with a start": ("RNN", (3, 4, 2), {"bias": False}, (normal(5, 2, 3), normal(2, 2, 4))),
    "gru of layers": (
        "GRU",
        (3, 4, 2),
        {"batch_first": True, "bidirectional": True},
        (normal(2, 4, 3),),
    ),
    "gru without bias": ("GRU", (3, 4), {"bias": False}, (normal(5, 2, 3),)),
    "lstm with projections": (
        "LSTM",
        (3, 4),
        {"num_layers": 2, "proj_size": 2, "bidirectional": True},
        (normal(4, 2, 3),),
    ),
    "rnn cell": ("RNNCell", (3, 4), {"nonlinearity": "relu"}, (normal(2, 3), normal(2, 4))),
    "rnn cell of one": ("RNNCell", (3, 4), {}, (normal(3),)),
    "gru cell of one": ("GRUCell", (3, 4), {}, (normal(3), normal(4))),
    # bags, lazy modules, many classes
    "bag of means": ("EmbeddingBag", (5, 3), {}, (INTEGERS,)),
    "bag of sums": ("EmbeddingBag", (5, 3), {"mode": "sum", "padding_idx": 3}, (INTEGERS,)),
    "bag of maxima": ("EmbeddingBag", (5, 3), {"mode": "max", "padding_idx": -4}, (INTEGERS,)),
    "bag of runs": ("EmbeddingBag", (5, 3), {}, (INTEGERS.ravel(), np.array([0, 2, 2, 5]))),
    "bag of runs to the last": (
        "EmbeddingBag",
        (5, 3),
        {"mode": "sum", "include_last_offset": True},
        (INTEGERS.ravel(), np.array([0, 2, 6]), normal(6)),
    ),
    "bag of limited rows": ("EmbeddingBag", (5, 3), {"max_norm": 0.5}, (INTEGERS,)),
    "lazy linear": ("LazyLinear", (3,), {}, (normal(2, 5, 4),)),
    "lazy conv1d": ("LazyConv1d", (4, 3), {"stride": 2}, (normal(2, 3, 8),)),
    "lazy conv2d": ("LazyConv2d", (4, 3), {"padding": 1, "groups": 2}, (normal(2, 2, 6, 5),)),
    "lazy conv3d": ("LazyConv3d", (3, 2), {"bias": False}, (normal(2, 4, 4, 4),)),
    "lazy transposed 1d": ("LazyConvTranspose1d", (2, 3), {"stride": 2}, (normal(2, 3, 4),)),
    "lazy transposed 2d": ("LazyConvTranspose2d", (2, 3), {"groups": 2}, (normal(1, 4, 3, 3),)),
    "lazy transposed 3d": ("LazyConvTranspose3d", (2, 2), {}, (normal(1, 2, 2, 3, 2),)),
    "lazy batch norm 1d": ("LazyBatchNorm1d", (), {"momentum": 0.3}, (normal(6, 4),)),
    "lazy batch norm 2d": ("LazyBatchNorm2d", (), {}, (normal(2, 3, 4, 4),)),
    "lazy batch norm 3d": ("LazyBatchNorm3d", (), {"affine": False}, (normal(2, 2, 2, 3, 2),)),
    "lazy instance norm 1d": ("LazyInstanceNorm1d", (), {"affine": True}, (normal(2, 3, 5),)),
    "lazy instance norm 2d": ("LazyInstanceNorm2d", (), {}, (normal(2, 3, 4, 4),)),
    "lazy instance norm 3d": (
        "LazyInstanceNorm3d",
        (),
        {"track_running_stats": True},
        (normal(2, 2, 2, 3, 2),),
    ),
    "adaptive softmax": (
        "AdaptiveLogSoftmaxWithLoss",
        (16, 12, [3, 7]),
        {"div_value": 2.0},
        (normal(6, 16), np.array([0, 2, 3, 6, 7, 11])),
    ),
    "adaptive softmax of one": (
        "AdaptiveLogSoftmaxWithLoss",
        (16, 12, [5]),
        {"head_bias": True},
        (normal(16), np.array(8)),
    ),
    # weights that are computed
    "normed linear": ("utils.parametrizations.weight_norm:Linear", (4, 3), {}, (normal(2, 4),)),
    "normed conv2d": (
        "utils.parametrizations.weight_norm:Conv2d",
        (2, 4, 3),
        {"bias": False},
        (normal(1, 2, 5, 5),),
    ),
    "spectral linear": (
        "utils.parametrizations.spectral_norm:Linear",
        (4, 3),
        {},
        (normal(2, 4),),
    ),
    "spectral transposed": (
        "utils.parametrizations.spectral_norm:ConvTranspose2d",
        (2, 3, 2),
        {},
        (normal(1, 2, 4, 4),),
    ),
    "older normed conv1d": ("utils.weight_norm:Conv1d", (3, 4, 3), {}, (normal(2, 3, 8),)),
    "older spectral linear": ("utils.spectral_norm:Linear", (4, 3), {}, (normal(2, 4),)),
    "older spectral conv2d": ("utils.spectral_norm:Conv2d", (2, 4, 3), {}, (normal(1, 2, 5, 5),)),
    # attention
    "attention with learned keys": (
        "MultiheadAttention",
        (8, 2),
        {"add_bias_kv": True, "add_zero_attn": True},
        (normal(3, 2, 8), normal(5, 2, 8), normal(5, 2, 8, seed=1)),
    ),
    "attention without bias": (
        "MultiheadAttention",
        (8, 4),
        {"bias": False},
        (normal(3, 8), normal(5, 8), normal(5, 8, seed=1)),
    ),
    "encoder layer": ("TransformerEncoderLayer", (8, 2, 16), {"dropout": 0.0}, (normal(4, 2, 8),)),
    "encoder layer norm first": (
        "TransformerEncoderLayer",
        (8, 2, 16),
        {
            "dropout": 0.0,
            "norm_first": True,
            "batch_first": True,
            "activation": "gelu",
            "bias": False,
        },
        (normal(2, 4, 8),),
    ),
    "decoder layer": (
        "TransformerDecoderLayer",
        (8, 2, 16),
        {"dropout": 0.0},
        (normal(4, 2, 8), normal(3, 2, 8)),
    ),
    "transformer": (
        "Transformer",
        (8, 2, 1, 2, 16),
        {"dropout": 0.0, "batch_first": True},
        (normal(2, 4, 8), normal(2, 3, 8)),
    ),
}

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.1}),
    "sgd plain": ("SGD", {"lr": 0.01}),
    "nesterov": ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "ascent": ("SGD", {"lr": 0.001, "maximize": True}),
    "adam": ("Adam", {"lr": 0.05, "amsgrad": True}),
    "adam decayed": ("Adam", {"lr": 0.05, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-4}),
    "adamw": ("AdamW", {"lr": 0.05, "weight_decay": 0.2}),
    "adamw ascent": ("AdamW", {"lr": 0.05, "maximize": True, "amsgrad": True}),
    "rmsprop": ("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True, "weight_decay": 0.1}),
    "rmsprop plain": ("RMSprop", {"lr": 0.01, "alpha": 0.9}),
    "adagrad": ("Adagrad", {"lr": 0.05, "lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    "adadelta": ("Adadelta", {"lr": 0.5, "weight_decay": 0.1}),
    "adadelta quick": ("Adadelta", {"rho": 0.5, "eps": 1e-3, "maximize": True}),
    "adamax": ("Adamax", {"lr": 0.05, "weight_decay": 0.1}),
    "adamax ascent": ("Adamax", {"lr": 0.05, "betas": (0.8, 0.95), "maximize": True}),
    "nadam": ("NAdam", {"lr": 0.05}),
    "nadam decayed": ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "momentum_decay": 0.1}),
    "nadam decoupled": (
        "NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True},
    ),
    "radam": ("RAdam", {"lr": 0.05}),
    "radam trusted": ("RAdam", {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    "radam decoupled": (
        "RAdam",
        {"lr": 0.05, "betas": (0.9, 0.95), "weight_decay": 0.1, "decoupled_weight_decay": True},
    ),
    "rprop": ("Rprop", {"lr": 0.05}),
    "rprop limited": ("Rprop", {"lr": 0.05, "etas": (0.3, 2.0), "step_sizes": (0.01, 0.2)}),
    "asgd": ("ASGD", {"lr": 0.01, "lambd": 0.1, "weight_decay": 0.1}),
    "asgd averaged": ("ASGD", {"lr": 0.01, "t0": 1.0, "alpha": 0.5, "maximize": True}),
    "adafactor": ("Adafactor", {"lr": 0.05}),
    "adafactor decayed": ("Adafactor", {"lr": 0.5, "weight_decay": 0.1, "d": 2.0}),
    "adafactor of a vector": ("Adafactor", {"lr": 0.05, "beta2_decay": -0.5}),
    "muon": ("Muon", {"lr": 0.02}),
    "muon matched": (
        "Muon", {"lr": 0.02, "adjust_lr_fn": "match_rms_adamw", "nesterov": False, "ns_steps": 3},
    ),
}  # fmt: skip
SCHEDULES: dict[str, tuple[str, dict[str, Any]]] = {
    "step": ("StepLR", {"step_size": 3, "gamma": 0.5}),
    "milestones": ("MultiStepLR", {"milestones": [2, 5], "gamma": 0.1}),
    "exponential": ("ExponentialLR", {"gamma": 0.9}),
    "constant": ("ConstantLR", {"factor": 0.5, "total_iters": 3}),
    "linear": ("LinearLR", {"start_factor": 0.1, "total_iters": 4}),
    "cosine": ("CosineAnnealingLR", {"T_max": 10, "eta_min": 0.01}),
    "restarts": ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.01}),
    "one cycle": ("OneCycleLR", {"max_lr": 1.0, "total_steps": 12}),
    "one cycle linear": (
        "OneCycleLR", {"max_lr": 1.0, "total_steps": 12, "anneal_strategy": "linear"},
    ),
    "lambda": ("LambdaLR", {"lr_lambda": lambda t: 0.5**t}),
    "multiplicative": ("MultiplicativeLR", {"lr_lambda": lambda t: 0.9 + 0.01 * t}),
    "polynomial": ("PolynomialLR", {"total_iters": 6, "power": 2.0}),
    "cyclic": (
        "CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 3, "mode": "triangular2"},
    ),
    "plateau": ("ReduceLROnPlateau", {"factor": 0.5, "patience": 1, "cooldown": 1}),
}  # fmt: skip
FIGURES = (1.0, 0.9, 0.9, 0.9, 0.95, 0.9, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3)


def flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [v for part in value for v in flat(part)]
    return [] if value is None else [value]


class Library:
    """torch or Svod: its modules and optimizers, and the way to tensors and back."""

    def __init__(self, name: str) -> None:
        if name == "torch":
            import torch

            torch.set_num_threads(1)
            self.nn, self.optim = torch.nn, torch.optim
            self.tensor = lambda x, grad: torch.tensor(x, requires_grad=grad)
            self.array = lambda t: t.detach().numpy()
        else:
            from svod import Tensor, nn

            self.nn, self.optim = nn, nn.optim
            self.tensor = lambda x, grad: Tensor(x, requires_grad=grad)
            self.array = lambda t: t.numpy()
        self.schedules = self.optim.lr_scheduler

    def module(self, name: str) -> tuple[dict[str, Any], list[str]]:
        """Results, gradients and buffers of a module by label, and the keys of its state."""
        kind, args, options, inputs = CASES[name]
        around, _, kind = kind.rpartition(":")
        module = getattr(self.nn, kind)(*args, **options)
        if around:
            module = attrgetter(around)(self.nn)(module)
        if kind.startswith("Lazy"):
            module(*[self.tensor(x, False) for x in inputs])
        keys = list(module.state_dict())
        module.load_state_dict({k: self.tensor(v, False) for k, v in self._weights(module).items()})
        trained = 1 if kind.endswith("Loss") else len(inputs)  # targets have no gradient
        given = [self.tensor(x, x.dtype.kind == "f" and i < trained) for i, x in enumerate(inputs)]
        found = flat(module(*given))
        floats = [f for f in found if "int" not in str(f.dtype)]
        (sum([(f * f).sum() for f in floats[1:]], (floats[0] * floats[0]).sum())).backward()
        labels = {f"output {i}": f for i, f in enumerate(found)}
        for i, x in enumerate(given):
            if x.requires_grad and x.grad is not None:
                labels[f"gradient of input {i}"] = x.grad
        labels |= {f"gradient of {k}": p.grad for k, p in module.named_parameters()}
        labels |= {f"buffer {k}": b for k, b in module.named_buffers()}
        done = {k: np.array(self.array(v)) for k, v in labels.items() if v is not None}
        module.eval()
        for i, f in enumerate(flat(module(*given))):
            done[f"evaluated {i}"] = np.array(self.array(f))
        return done, keys

    def labelled(self, reduction: str) -> Any:
        """CTC losses and the gradient of scores: log-probabilities have another in torch."""
        labels = np.array([[1, 1, 2, 2], [4, 1, 3, 4], [2, 3, 1, 1]])
        scores = self.tensor(normal(9, 3, 5), True)
        loss = self.nn.CTCLoss(reduction=reduction)
        times, counts = [np.array(v) for v in ((9, 6, 4), (3, 4, 0))]
        given = [self.tensor(v, False) for v in (labels, times, counts)]
        found = loss(scores.log_softmax(2), *given)
        (found * found).sum().backward()
        return np.concatenate([self.array(t).ravel() for t in (found, scores.grad)])

    def packed(self, kind: str) -> dict[str, Any]:
        """A recurrent module over sequences of different lengths."""
        rnn = self.nn.utils.rnn
        module = getattr(self.nn, kind)(3, 4, 2, bidirectional=True)
        module.load_state_dict({k: self.tensor(v, False) for k, v in self._weights(module).items()})
        x = self.tensor(normal(5, 4, 3), True)
        state = self.tensor(normal(4, 4, 4, seed=2), True)
        lengths = self.tensor(np.array([2, 5, 1, 4]), False)
        given = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        found, last = module(given, (state, state) if kind == "LSTM" else state)
        spread, sizes = rnn.pad_packed_sequence(found, padding_value=-1.0, total_length=6)
        ends = flat(last)
        sum([(t * t).sum() for t in (found.data, *ends)][1:], (found.data**2).sum()).backward()
        done = {"packed": found.data, "sizes": found.batch_sizes, "spread": spread, "all": sizes,
                "gradient": x.grad, "of the state": state.grad}  # fmt: skip
        done |= {f"gradient of {k}": p.grad for k, p in module.named_parameters()}
        done |= {f"end {i}": e for i, e in enumerate(ends)}
        return {k: np.array(self.array(v)) for k, v in done.items()}

    def _weights(self, module: Any) -> dict[str, Any]:
        """The same on both sides: numbers from the place of each key."""
        found = {}
        for i, (key, value) in enumerate(module.state_dict().items()):
            array = np.array(self.array(value))
            if array.dtype.kind == "f" and "running" not in key:
                array = normal(*array.shape, seed=i) * np.float32(0.5)
            found[key] = array
        return found

    def trained(self, name: str) -> Any:
        """A parameter after some steps; the learning rate changes on the way."""
        kind, options = OPTIMIZERS[name]
        shape = (6,) if name.endswith("vector") else (4, 3)
        w, goal = self.tensor(normal(*shape), True), self.tensor(normal(*shape, seed=1), False)
        optimizer = getattr(self.optim, kind)([w], **options)
        for step in range(STEPS):
            if step == STEPS // 2:
                optimizer.param_groups[0]["lr"] *= 0.5
            optimizer.zero_grad()
            ((w - goal) ** 2 * w).sum().backward()
            optimizer.step()
        return np.array(self.array(w))

    def rates(self, name: str) -> Any:
        """Learning rates over some steps."""
        kind, options = SCHEDULES[name]
        optimizer = self.optim.SGD([self.tensor(normal(2), True)], lr=0.5, momentum=0.9)
        if kind == "CyclicLR" and "torch" in str(self.optim):
            options = {**options, "cycle_momentum": False}
        schedule = getattr(self.schedules, kind)(optimizer, **options)
        found = []
        for figure in FIGURES:
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step(*([figure] if kind == "ReduceLROnPlateau" else []))
        return np.array(found)


def everything(library: Library) -> dict[str, Any]:
    """All results by label."""
    found: dict[str, Any] = {}
    for name in CASES:
        arrays, keys = library.module(name)
        found[f"{name}|keys"] = np.frombuffer("\n".join(keys).encode(), np.uint8)
        found |= {f"{name}|{label}": value for label, value in arrays.items()}
    for kind in RECURRENT:
        found |= {f"packed {kind}|{k}": v for k, v in library.packed(kind).items()}
    found |= {f"labels {how}": library.labelled(how) for how in REDUCTIONS}
    found |= {f"optimizer {name}": library.trained(name) for name in OPTIMIZERS}
    found |= {f"schedule {name}": library.rates(name) for name in SCHEDULES}
    return found


def record() -> None:
    """Write what torch finds: all elements one after the other, and where each array is."""
    index, data = {}, bytearray()
    for label, array in everything(Library("torch")).items():
        index[label] = [array.dtype.str, list(array.shape), len(data)]
        data += array.tobytes()
    text = np.frombuffer(json.dumps(index).encode(), np.uint8)
    np.savez_compressed(FILE, index=text, data=np.frombuffer(bytes(data), np.uint8))


def recorded() -> dict[str, Any]:
    """What torch found."""
    with np.load(FILE) as file:
        index, data = json.loads(bytes(file["index"])), file["data"].tobytes()
    found = {}
    for label, (dtype, shape, start) in index.items():
        count = int(np.prod(shape))
        found[label] = np.frombuffer(data, dtype, count, start).reshape(shape)
    return found


if __name__ == "__main__":
    record()
