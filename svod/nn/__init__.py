"""Modules, initialisers, optimisers and files of weights: ``svod.nn.Linear``, ``svod.nn.optim``."""

from svod.nn import functional, init, optim, state
from svod.nn.activations import *  # noqa: F403
from svod.nn.activations import __all__ as _functions
from svod.nn.adaptive_softmax import AdaptiveLogSoftmaxWithLoss
from svod.nn.attention import MultiheadAttention
from svod.nn.containers import (
    ModuleDict,
    ModuleList,
    ParameterDict,
    ParameterList,
    Sequential,
)
from svod.nn.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from svod.nn.embedding import Embedding, EmbeddingBag
from svod.nn.inference import inference
from svod.nn.layers import Bilinear, Dropout, Flatten, Identity, Linear, Unflatten
from svod.nn.lazy import *  # noqa: F403
from svod.nn.lazy import __all__ as _lazy
from svod.nn.module import Module, Parameter
from svod.nn.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    RMSNorm,
)
from svod.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
)
from svod.nn.porting import from_torch
from svod.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from svod.nn.transformer import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

from svod.nn import utils  # isort: skip  # built on the modules above
from svod.reference.docstrings import describe

__all__ = [
    "GRU", "LSTM", "RNN", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d",
    "AdaptiveLogSoftmaxWithLoss", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d",
    "AvgPool1d", "AvgPool2d", "AvgPool3d", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Bilinear",
    "Conv1d", "Conv2d",
    "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Dropout", "Embedding",
    "EmbeddingBag", "Flatten", "GRUCell", "GroupNorm", "Identity", "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d", "LSTMCell", "LayerNorm", "Linear", "MaxPool1d", "MaxPool2d", "MaxPool3d",
    "Module", "ModuleDict", "ModuleList", "MultiheadAttention", "Parameter", "ParameterDict",
    "ParameterList", "RMSNorm", "RNNCell",
    "Sequential", "Transformer", "TransformerDecoder", "TransformerDecoderLayer",
    "TransformerEncoder", "TransformerEncoderLayer", "Unflatten", "from_torch", "functional",
    "inference", "init", "optim", "state", "utils", *_functions, *_lazy,
]  # fmt: skip

describe(globals(), "svod.nn")
