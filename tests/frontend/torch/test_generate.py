"""Text by ``generate()`` of transformers: the tokens of eager, in few plans, with either cache."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch

from svod.frontend.torch import backend, report
from tests.frontend.torch.zoo import made, transformers

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers"),
]


def llama() -> Any:
    return made("llama")[0]


def t5() -> Any:
    t = transformers()
    config = t.T5Config(
        d_model=32, num_layers=2, num_heads=2, d_kv=16, d_ff=64, vocab_size=100, dropout_rate=0,
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
    )  # fmt: skip
    model = t.T5ForConditionalGeneration(config)
    for p in model.parameters():  # so that tokens differ
        p.data += 0.2 * torch.randn(p.shape)
    return model


@pytest.mark.parametrize("cache", ["static", "dynamic"])
@pytest.mark.parametrize("make", [llama, t5], ids=lambda make: make.__name__)
def test_generated_tokens_are_those_of_eager_in_three_plans(make: Any, cache: str) -> None:
    model = make().eval()
    ids = torch.randint(3, 100, (2, 7))
    options: dict[str, Any] = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
    if cache == "static":
        options.update(cache_implementation="static", disable_compile=True)
    want = model.generate(ids, **options)
    assert len(set(want[0].tolist())) > 1
    model.forward = torch.compile(model.forward, backend=backend, options={"fallback": "error"})
    for _ in range(2):
        assert torch.equal(model.generate(ids, **options), want)
    assert report().plans <= 3
