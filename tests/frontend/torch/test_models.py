"""Models of libraries, small and with random weights: forward, gradients and training as in eager.

The models are in `zoo.py`. Graphs are counted beside those of a backend that only runs them, so a
break that dynamo makes anyway is no failure here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from svod.frontend.torch import backend, report
from tests.frontend.torch.zoo import MODELS, first, made

QUICK = ["gpt2", "llama", "mixtral", "bert", "t5", "vit", "flow", "unet", "denoiser", "lstm",
         "encoder"]  # fmt: skip
TRAINED = ["gpt2", "bert", "torchvision_resnet18", "vit", "lstm"]
OWN = ["flow", "unet", "denoiser", "lstm", "gru", "encoder", "transformer"]

needs_transformers = pytest.mark.skipif(
    find_spec("transformers") is None, reason="needs transformers"
)
long = pytest.mark.long


def _parameters(names: Any, quick: Any = ()) -> list[Any]:
    """Cases with their marks: what they need, and whether they are quick."""
    found = []
    for name in names:
        marks = [] if name in quick else [long]
        if name not in OWN and find_spec(_library(name)) is None:
            marks.append(pytest.mark.skip(reason=f"needs {_library(name)}"))
        found.append(pytest.param(name, marks=marks))
    return found


def _library(name: str) -> str:
    start = name.partition("_")[0]
    return start if start in ("timm", "torchvision") else "transformers"


@pytest.fixture(autouse=True)
def recurrent_layers_are_recorded() -> Iterator[None]:
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


def _compiled(model: Any) -> Callable[..., Any]:
    return torch.compile(model, backend=backend, options={"fallback": "error"})


def _graphs(model: Any, given: dict[str, Any]) -> int:
    """How many graphs dynamo records."""
    count = 0

    def counting(gm: torch.fx.GraphModule, _: Any) -> Any:
        nonlocal count
        count += 1
        return gm.forward

    torch._dynamo.reset()
    torch.compile(model, backend=counting)(**given)
    torch._dynamo.reset()
    return count


def _check(got: torch.Tensor, want: torch.Tensor, room: float) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype
    assert (got - want).abs().max() <= room * want.abs().max()


@pytest.mark.parametrize("name", _parameters(MODELS, QUICK))
def test_forward_follows_eager_in_one_plan_for_each_graph(name: str) -> None:
    model, given = made(name)
    model.eval()
    with torch.no_grad():
        expected = _graphs(model, given)
        _check(first(_compiled(model)(**given)), first(model(**given)), 1e-4)
    assert report().graphs == report().plans <= expected  # dynamo may know more on its second look


# These make float32 numbers of their own, which eager refuses to mix with bfloat16.
FLOAT32_INSIDE = ("flow", "denoiser")


@pytest.mark.parametrize("name", _parameters([m for m in MODELS if m not in FLOAT32_INSIDE]))
def test_forward_follows_eager_in_bfloat16(name: str) -> None:
    model, given = made(name)
    model.eval()
    with torch.no_grad():
        exact = first(model(**given))
        model.to(torch.bfloat16)
        given = {key: _narrowed(value) for key, value in given.items()}
        want = first(model(**given)).float()
        got = first(_compiled(model)(**given)).float()
    # Each is a rounding of the same numbers: ours may be as far from them as eager's is.
    room = max(2e-2 * float(exact.abs().max()), 1.5 * float((want - exact).abs().max()))
    assert min((got - want).abs().max(), (got - exact).abs().max()) <= room


def _narrowed(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(torch.bfloat16) if is_float else value


# -- training --------------------------------------------------------------------------------------


def _loss(result: Any) -> torch.Tensor:
    found = first(result)
    return (found * torch.linspace(-1, 1, found.numel()).view_as(found)).sum()


@pytest.mark.parametrize(
    "name", _parameters([*TRAINED, "llama", "t5", "mixtral", "mamba", "unet", "flow", "denoiser",
                         "encoder", "timm_swin_tiny_patch4_window7_224"], ["gpt2", "lstm"])
)  # fmt: skip
def test_gradients_follow_eager(name: str) -> None:
    model, given = made(name)
    model.train()
    other = copy.deepcopy(model)
    _loss(model(**given)).backward()
    _loss(_compiled(other)(**given)).backward()
    largest = max(p.grad.abs().max() for p in model.parameters() if p.grad is not None)
    for (key, p), q in zip(other.named_parameters(), model.parameters(), strict=True):
        if q.grad is None:
            continue
        # Some gradients are zero but for rounding (the bias of keys): the largest one counts.
        room = 1e-4 * max(q.grad.abs().max(), largest * 1e-2)
        assert p.grad is not None and (p.grad - q.grad).abs().max() <= room, key


@pytest.mark.long
@pytest.mark.parametrize("name", _parameters(TRAINED))
def test_twenty_steps_of_training_follow_eager(name: str) -> None:
    model, given = made(name)
    model.train()
    other = copy.deepcopy(model)
    losses: list[list[float]] = []
    for run, trained in ((model, model), (_compiled(other), other)):
        optimizer = torch.optim.AdamW(trained.parameters(), 1e-3)
        losses.append([])
        for _ in range(20):
            optimizer.zero_grad()
            found = first(run(**given))
            goal = torch.linspace(-1, 1, found.numel()).view_as(found)
            loss = torch.nn.functional.mse_loss(found, goal)
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0][-1] < losses[0][0]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert report().plans == 2


@long
@needs_transformers
def test_lengths_of_gpt2_share_a_plan() -> None:
    model, _ = made("gpt2")
    model.eval()
    run = torch.compile(model, backend=backend, dynamic=True, options={"fallback": "error"})
    with torch.no_grad():
        for shape in ((2, 9), (3, 14), (2, 11)):
            ids = torch.randint(0, 100, shape)
            got, want = (f(input_ids=ids, use_cache=False)[0] for f in (run, model))
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert report().plans == 1
