"""Block formats decode to the bits that their definition says."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

import svod
from svod.llm.errors import ModelFileError
from svod.llm.formats import BY_NAME, FORMATS, BlockFormat

BLOCKS = 48
BLOCK_FORMATS = [kind for kind in FORMATS if kind.elements > 1]

# Digests of what the `gguf` package's dequantisation gives for `sample`, NaN as one pattern.
DIGESTS = {
    "Q4_0": "792baa0fbdb5eb39",
    "Q4_1": "682b40c5d41b0884",
    "Q5_0": "28357d0d4a5cc919",
    "Q5_1": "1f60d1981706e395",
    "Q8_0": "a4133a3aa4bf8c0b",
    "Q2_K": "cfb34eca2531a93d",
    "Q3_K": "d40eb223175e6b32",
    "Q4_K": "8b16128c038e9fba",
    "Q5_K": "9d56a7c4c04fda2e",
    "Q6_K": "44ba57c7cbb2ece4",
    "IQ4_NL": "1fba4e2e2a16f4de",
    "IQ4_XS": "cb0e170443a5fefa",
    "MXFP4": "bc2b4f37f2c7d044",
    "NVFP4": "37be0e0707ed95db",
}


def sample(kind: BlockFormat) -> np.ndarray[Any, Any]:
    """Bytes that only depend on the name of the format."""
    raw = hashlib.shake_256(kind.name.encode()).digest(BLOCKS * kind.nbytes)
    return np.frombuffer(raw, np.uint8).reshape(BLOCKS, kind.nbytes)


def digest(values: np.ndarray[Any, Any]) -> str:
    bits = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))
    return hashlib.sha256(bits.astype("<u4").tobytes()).hexdigest()[:16]


def decoded(kind: BlockFormat) -> np.ndarray[Any, Any]:
    return kind.decoded(svod.Tensor(sample(kind)), (BLOCKS, kind.elements)).numpy()


@pytest.mark.parametrize("kind", BLOCK_FORMATS, ids=lambda kind: kind.name)
def test_random_blocks_decode_to_the_recorded_bits(kind: BlockFormat) -> None:
    assert digest(decoded(kind)) == DIGESTS[kind.name]


@pytest.mark.long
@pytest.mark.parametrize("kind", BLOCK_FORMATS, ids=lambda kind: kind.name)
def test_the_recorded_bits_are_those_of_the_gguf_package(kind: BlockFormat) -> None:
    gguf = pytest.importorskip("gguf", reason="the reference of the formats")
    number = gguf.GGMLQuantizationType[kind.name]
    assert gguf.GGML_QUANT_SIZES[number] == (kind.elements, kind.nbytes)
    assert int(number) == kind.number
    with np.errstate(all="ignore"):
        assert digest(gguf.dequantize(sample(kind), number)) == DIGESTS[kind.name]


def test_decoding_fuses_into_the_product_that_reads_the_weights() -> None:
    kind = BY_NAME["Q8_0"]
    raw = sample(kind).copy()
    raw[:, 1] = 0x2C  # scales of about 1/16
    memory = svod.Tensor(raw)
    x = svod.Tensor(np.linspace(-1, 1, 32, dtype=np.float32))
    expected = kind.decoded(memory, (BLOCKS, 32)).numpy() @ x.numpy()
    product = (kind.decoded(memory, (BLOCKS, 32)) * x).sum(1)
    plan = svod.prepare(product, inputs={"x": x}, outputs=["y"])
    assert len(list(plan.kernels())) == 1
    assert np.allclose(plan(x=x.numpy()), expected, rtol=1e-5, atol=1e-4)


def test_rows_are_whole_blocks() -> None:
    with pytest.raises(ModelFileError, match="blocks of 32"):
        BY_NAME["Q4_0"].size((2, 40))
