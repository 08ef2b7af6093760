"""Sequences of different lengths, under the names of torch.nn.utils.rnn."""

from svod.nn.packed import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpad_sequence,
)
from svod.reference.docstrings import describe

__all__ = [
    "PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence",
    "pad_sequence", "unpad_sequence",
]  # fmt: skip

describe(globals(), "svod.nn.utils.rnn")
