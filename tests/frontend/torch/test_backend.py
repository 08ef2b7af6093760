"""torch.compile with Svod: what is compiled behaves as eager does."""

from __future__ import annotations

import copy
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from svod.base.errors import ConfigError, SvodWarning, UnsupportedError
from svod.frontend.torch import backend, report
from svod.frontend.torch.options import Options
from tests.frontend.torch.running import compare

STRICT = {"fallback": "error"}


def compiled(function: Any, dynamic: bool | None = None, **options: Any) -> Any:
    return torch.compile(function, backend=backend, dynamic=dynamic, options={**STRICT, **options})


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


# -- registration and options ----------------------------------------------------------------------


def test_the_entry_point_names_the_backend() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    points = tomllib.loads(text)["project"]["entry-points"]["torch_dynamo_backends"]
    module, _, name = points["svod"].partition(":")
    assert getattr(__import__(module, fromlist=[name]), name) is backend


def test_a_registered_backend_is_found_by_name() -> None:
    from torch._dynamo.backends.registry import _COMPILER_FNS, register_backend

    if "svod" not in torch._dynamo.list_backends():
        register_backend(compiler_fn=backend, name="svod")
    try:
        model, x = mlp(), torch.randn(4, 6)
        with torch.no_grad():
            compare(torch.compile(model, backend="svod")(x), model(x))
    finally:
        _COMPILER_FNS.pop("svod", None)


def test_an_option_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no option 'thread': use threads, freeze"):
        Options.of({"thread": 2})


@pytest.mark.parametrize(
    "given", [{"threads": -1}, {"freeze": 1}, {"beam": "2"}, {"fallback": "no"}, {"threads": True}]
)
def test_a_value_that_an_option_does_not_take_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        Options.of(given)


# -- values ----------------------------------------------------------------------------------------


def test_a_network_is_one_plan_and_gives_what_eager_gives() -> None:
    model, x = mlp(), torch.randn(4, 6)
    run = compiled(model)
    with torch.no_grad():
        for _ in range(3):
            compare(run(x), model(x))
    assert (report().graphs, report().plans) == (1, 1)


def test_training_follows_eager() -> None:
    a = mlp()
    b = copy.deepcopy(a)
    run = compiled(b)
    x, y = torch.randn(8, 6), torch.randn(8, 3)
    losses: list[list[float]] = [[], []]
    for which, (call, model) in enumerate([(a, a), (run, b)]):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        for _ in range(5):
            optimizer.zero_grad()
            loss = F.mse_loss(call(x), y)
            loss.backward()
            optimizer.step()
            losses[which].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)
    assert report().plans == 2


def test_half_precision_stays_half() -> None:
    model, x = mlp().bfloat16(), torch.randn(4, 6, dtype=torch.bfloat16)
    with torch.no_grad():
        compare(compiled(model)(x), model(x))


def test_autocast_computes_products_in_bfloat16() -> None:
    model, x = mlp(), torch.randn(4, 6)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        compare(compiled(model)(x), model(x))


def test_complex_numbers_pass_through() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.ifft(torch.fft.fft(x) * 2).real + torch.view_as_real(x * x).sum(-1)

    x = torch.randn(4, 8, dtype=torch.complex64)
    compare(compiled(f)(x), f(x))


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shown",
    [
        lambda x: x.mT,
        lambda x: x[:, 1:5],
        lambda x: x[1::2],
        lambda x: x[:, ::3],
        lambda x: x[0].expand(4, 6),
        lambda x: x.as_strided((3, 4), (2, 3)),
        lambda x: x.unfold(1, 3, 2),
        lambda x: x.reshape(2, 3, 6).permute(2, 0, 1)[1:],
    ],
)
def test_arguments_are_read_where_they_lie(shown: Any) -> None:
    x = shown(torch.randn(6, 6))
    compare(compiled(lambda a: a * 2 + a.sum())(x), x * 2 + x.sum())


def test_results_have_the_strides_of_eager() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x + 1).permute(2, 0, 1), F.conv2d(x.unsqueeze(0), torch.ones(1, 2, 1, 1))

    x = torch.randn(2, 3, 4)
    for got, want in zip(compiled(f)(x), f(x), strict=True):
        compare(got, want)
        assert got.stride() == want.stride()


def test_views_of_arguments_are_views() -> None:
    x = torch.randn(3, 4)
    got, doubled = compiled(lambda a: (a.mT[1:], a * 2))(x)
    x[0, 1] = 7.0
    assert got[0, 0] == 7.0 and got.data_ptr() == x.mT[1:].data_ptr()
    assert doubled.shape == x.shape


def test_views_of_results_share_memory_as_in_eager() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        return y, y.view(-1)

    whole, line = compiled(f)(torch.ones(2, 3))
    whole[0, 0] = 9.0
    assert line[0] == 9.0


def test_writes_to_arguments_reach_them() -> None:
    def f(x: torch.Tensor, cache: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, at, x)
        x.mul_(2)
        cache[:, 0] = 5.0
        return cache.sum()

    results = []
    for run in (f, compiled(f)):
        torch.manual_seed(1)
        x, cache, at = torch.randn(2, 3), torch.zeros(6, 3), torch.tensor([4, 1])
        results.append((run(x, cache, at), x, cache))
    for want, got in zip(*results, strict=True):
        compare(got, want)


def test_statistics_of_batch_norm_are_kept() -> None:
    a = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    b = copy.deepcopy(a)
    run, x = compiled(b), torch.randn(2, 3, 8, 8)
    for _ in range(3):
        compare(run(x).detach(), a(x).detach())
    for p, q in zip(b.buffers(), a.buffers(), strict=True):
        torch.testing.assert_close(p, q)


def test_an_argument_that_is_returned_is_that_argument() -> None:
    x = torch.randn(3)
    got, _ = compiled(lambda a: (a, a + 1))(x)
    assert got.data_ptr() == x.data_ptr()


def test_empty_tensors_pass() -> None:
    compare(compiled(lambda a: (a * 2).sum(0))(torch.zeros(0, 3)), torch.zeros(3))
    compare(compiled(lambda a: a[:, :0] * 2)(torch.zeros(2, 3)), torch.zeros(2, 0))


def test_equal_results_are_tensors_of_their_own() -> None:
    a, b = compiled(lambda x: (x * 2, x * 2))(torch.ones(3))
    a[0] = 5
    assert b[0] == 2


# -- random numbers --------------------------------------------------------------------------------


def test_random_numbers_differ_and_follow_the_seed() -> None:
    run = compiled(lambda x: torch.rand_like(x) + F.dropout(torch.ones(100), 0.5).sum())
    x = torch.zeros(50)
    torch.manual_seed(3)
    first, second = run(x), run(x)
    torch.manual_seed(3)
    assert not torch.equal(first, second)
    assert torch.equal(first, run(x)) and torch.equal(second, run(x))


def test_dropout_scales_what_it_keeps_and_its_gradient() -> None:
    x = torch.ones(10000, requires_grad=True)
    y = compiled(lambda a: F.dropout(a, 0.25))(x)
    y.sum().backward()
    kept = y != 0
    assert 0.72 < kept.float().mean() < 0.78
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], 1 / 0.75))
    torch.testing.assert_close(x.grad, y.detach())


# -- what is not translated ------------------------------------------------------------------------


def _with_unknown(x: torch.Tensor) -> torch.Tensor:
    y = torch.special.airy_ai(x * 2) + 1
    return torch.special.airy_ai(y.relu()) @ x.mT


def test_torch_runs_what_is_not_there_with_one_warning() -> None:
    run = torch.compile(_with_unknown, backend=backend)
    x = torch.randn(4, 6)
    with pytest.warns(SvodWarning, match=r"aten\.special_airy_ai\.default") as found:
        compare(run(x), _with_unknown(x))
    assert len([w for w in found if w.category is SvodWarning]) == 1
    assert report().fallbacks["aten.special_airy_ai.default"] == 2
    assert report().plans == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(run(x), _with_unknown(x))


def test_fallback_error_refuses_and_names_the_operator() -> None:
    with pytest.raises(Exception, match=r"special_airy_ai") as found:
        compiled(_with_unknown)(torch.randn(4, 6))
    assert isinstance(found.value.__cause__ or found.value, (UnsupportedError, Exception))


def test_shapes_that_depend_on_values_are_found_by_torch() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x[x > 0] * 2).cumsum(0) + x.sum()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        run = torch.compile(f, backend=backend)
        for size in (5, 9, 40):
            x = torch.randn(size)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SvodWarning)
                compare(run(x), f(x))


# -- frozen parameters -----------------------------------------------------------------------------


def test_frozen_parameters_are_read_once() -> None:
    model, x = mlp(), torch.randn(16, 6)
    run = compiled(model, freeze=True)
    with torch.no_grad():
        before = model(x)
        compare(run(x), before)
        model[0].weight.zero_()
        compare(run(x), before)
        y = torch.randn(16, 6)
        assert not torch.equal(run(y), run(x))


def test_a_frozen_model_can_still_be_trained() -> None:
    model, x = mlp(), torch.randn(16, 6)
    compiled(model, freeze=True)(x).sum().backward()
    other = copy.deepcopy(model)
    other.zero_grad()
    other(x).sum().backward()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        (3, 2, 1, 1, False),
        (2, 2, 0, 1, True),
        (3, 1, 1, 2, False),
        ((2, 3), (1, 2), (1, 0), 1, True),
    ],
)
def test_the_gradient_of_a_pool_goes_to_the_first_of_equal_elements(settings: Any) -> None:
    def pooled(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.max_pool2d(x, *settings)

    x = torch.randint(0, 3, (2, 3, 9, 8)).float()
    grads = []
    for function in (pooled, torch.compile(pooled, backend=backend, options={"fallback": "error"})):
        leaf = x.clone().requires_grad_()
        out = function(leaf)
        out.backward(torch.arange(out.numel(), dtype=torch.float32).reshape(out.shape))
        grads.append(leaf.grad)
    torch.testing.assert_close(grads[1], grads[0])
