"""Complex tensors as graphs of real numbers: values in and out, parts, memory, gradients, jit."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import ComplexOperand, DTypeError
from svod.dtype import complex64, complex128, float32, float64, promote, result_type
from svod.ir import ops as O
from svod.ir.node import make
from svod.tensor.core.complex_parts import joined, parts

KINDS = [np.complex64, np.complex128]
RNG = np.random.default_rng(7)


def numbers(shape: tuple[int, ...], kind: type = np.complex64) -> np.ndarray:
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 4)])
def test_arrays_go_in_and_out(kind: type, shape: tuple[int, ...]) -> None:
    array = numbers(shape, kind)
    x = Tensor(array)
    assert x.shape == shape and x.dtype.name == np.dtype(kind).name
    np.testing.assert_array_equal(x.numpy(), array)
    assert x.numpy().dtype == kind
    np.testing.assert_array_equal(np.asarray(x + 0), array)
    back = pickle.loads(pickle.dumps(x))
    assert back.dtype is x.dtype and back.shape == shape
    np.testing.assert_array_equal(copy.deepcopy(x).numpy(), array)


def test_memory_is_shared_where_it_can_be() -> None:
    array = numbers((4, 3))
    shared, copied = Tensor.from_numpy(array), Tensor(array)
    array[1] = 5j
    np.testing.assert_array_equal(shared.numpy(), array)
    assert not (copied.numpy()[1] == 5j).any()
    shared.array_view()[0, 0] = 9 + 1j
    assert array[0, 0] == 9 + 1j
    strided = array[:, ::2]
    np.testing.assert_array_equal(Tensor.from_numpy(strided).numpy(), strided)
    back = np.from_dlpack(shared)
    assert back.dtype == np.complex64
    np.testing.assert_array_equal(back, array)
    np.testing.assert_array_equal(svod.from_dlpack(array).numpy(), array)


def test_parts_and_joined() -> None:
    array = numbers((3, 2), np.complex128)
    re, im = parts(Tensor(array))
    np.testing.assert_array_equal(re.numpy(), array.real)
    np.testing.assert_array_equal(im.numpy(), array.imag)
    again = joined(re, im)
    assert again.dtype is complex128
    np.testing.assert_array_equal(again.numpy(), array)
    wide = joined(Tensor([1.0, 2.0]), Tensor([[1.0], [2.0]]))
    assert wide.shape == (2, 2) and wide.dtype is complex64
    real, none = parts(Tensor([1.0]))
    assert real.numpy()[0] == 1 and none.numpy()[0] == 0


def test_parts_of_memory_are_put_together_without_a_kernel() -> None:
    x = Tensor(numbers((8,))).realize()
    assert joined(*parts(x)).is_realized


def test_numbers_and_lists() -> None:
    assert Tensor(1j).dtype is complex64 and Tensor(1j).item() == 1j
    assert Tensor([1, 2j]).dtype is complex64
    assert Tensor([1.0, 2j], dtype="complex128").dtype is complex128
    assert complex(Tensor([3 + 4j])) == 3 + 4j
    assert "1.+2.j" in repr(Tensor([1 + 2j]))
    assert bool(Tensor(0j)) is False and bool(Tensor(1j)) is True
    assert Tensor([1j, 2]).tolist() == [1j, 2]
    with pytest.raises(DTypeError, match=r"int\(\) takes real numbers"):
        int(Tensor(1j))


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        (float32, complex64, complex64),
        (float64, complex64, complex128),
        (svod.int64, complex64, complex64),
        (svod.float16, complex64, complex64),
        (svod.bfloat16, complex128, complex128),
        (complex64, complex128, complex128),
        (svod.bool, complex64, complex64),
    ],
)
def test_promotion(a: svod.DType, b: svod.DType, found: svod.DType) -> None:
    assert promote(a, b) is found and promote(b, a) is found


def test_python_numbers_are_weak() -> None:
    assert result_type(float64, 1j) is complex128
    assert result_type(float32, 1j) is complex64
    assert result_type(svod.int8, 1j) is complex64
    assert result_type(complex64, 1.5) is complex64
    assert (Tensor([1.0], dtype="f64") * 1j).dtype is complex128
    assert (1j + Tensor([1])).dtype is complex64


def test_kernels_never_see_a_complex_dtype() -> None:
    x = Tensor(numbers((4,)))
    found = x * x + x.conj()
    plan = found.prepare()
    plan.execute()
    assert len(plan.prepared_kernels()) == 1  # both parts in one kernel
    a = x.numpy()
    np.testing.assert_allclose(found.numpy(), a * a + a.conj(), rtol=1e-6)
    with pytest.raises(ComplexOperand, match="SIN takes real numbers, not complex64"):
        make(O.SIN, complex64, (x.uop,))


def test_real_tensors_meet_complex_ones() -> None:
    z, x = numbers((3,)), np.array([1.0, 2.0, 3.0], np.float32)
    for f in (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a == b):
        for a, b in ((z, x), (x, z)):
            np.testing.assert_allclose(f(Tensor(a), Tensor(b)).numpy(), f(a, b), rtol=1e-6)
            np.testing.assert_allclose(f(Tensor(a), b).numpy(), f(a, b), rtol=1e-6)
    np.testing.assert_allclose(Tensor(x).add(Tensor(z)).numpy(), x + z, rtol=1e-6)
    np.testing.assert_allclose(svod.add(Tensor(x), 2j).numpy(), x + 2j, rtol=1e-6)


def test_views_and_writes() -> None:
    a = numbers((3, 4))
    x = Tensor(a).realize()
    assert x[1:].numpy().tolist() == a[1:].tolist()
    x[1:, 0] = 7j
    a[1:, 0] = 7j
    np.testing.assert_array_equal(x.numpy(), a)
    y = Tensor(a).realize()
    y[0].assign(Tensor([1j, 2.0, 3, 4])).realize()
    a[0] = [1j, 2, 3, 4]
    np.testing.assert_array_equal(y.numpy(), a)
    y += 1j
    np.testing.assert_array_equal(y.numpy(), a + np.complex64(1j))
    r = Tensor([1.0, 2.0])
    with pytest.raises(DTypeError, match="does not fit a float32 tensor"):
        r += 1j
    x.copyin(a)
    np.testing.assert_array_equal(x.numpy(), a)


def test_two_tensors_of_zeros_have_memory_of_their_own() -> None:
    a, b = svod.zeros(2, dtype=complex64), svod.zeros(2, dtype=complex64)
    a.realize(b)
    a.array_view()[0] = 1
    assert b.numpy()[0] == 0


def test_jit_takes_and_gives_complex_tensors() -> None:
    @svod.jit
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * y, (x * x).real

    a, b = numbers((5,)), numbers((5,))
    for _ in range(2):
        p, q = f(Tensor(a), Tensor(b))
        np.testing.assert_allclose(p.numpy(), a * b, rtol=1e-6)
        np.testing.assert_allclose(q.numpy(), (a * a).real, rtol=1e-5, atol=1e-6)
    assert f.plans == 1
    p, _ = f(a, b[::-1])
    np.testing.assert_allclose(p.numpy(), a * b[::-1], rtol=1e-6)


def test_jit_keeps_complex_state() -> None:
    state = Tensor(numbers((3,))).realize()
    start = state.numpy()

    @svod.jit(state=state)
    def step(x: Tensor) -> Tensor:
        state.assign(state * x)
        return state + 1

    for k in (1, 2):
        found = step(Tensor([2j, 2j, 2j]))
        np.testing.assert_allclose(state.numpy(), start * (2j) ** k, rtol=1e-6)
        np.testing.assert_allclose(found.numpy(), start * (2j) ** k + 1, rtol=1e-6)


def test_gradients_are_those_of_the_parts() -> None:
    a = numbers((4,), np.complex128)
    z = Tensor(a).requires_grad_()
    (z * z.conj() * z).real.sum().backward()
    assert z.grad is not None and z.grad.dtype is complex128
    h = 1e-6

    def loss(v: np.ndarray) -> float:
        return float((v * v.conj() * v).real.sum())

    for i in range(4):
        d = np.zeros(4)
        d[i] = h
        re = (loss(a + d) - loss(a - d)) / (2 * h)
        im = (loss(a + 1j * d) - loss(a - 1j * d)) / (2 * h)
        assert abs(z.grad.numpy()[i] - (re + 1j * im)) < 1e-6
    given = svod.grad(lambda v: (v * v).imag.sum())(Tensor(a))
    np.testing.assert_allclose(given.numpy(), 2j * a.conj(), rtol=1e-9)
    with pytest.raises(RuntimeError, match="starts from a real number"):
        (z.sum() * 1).backward()
    assert (z * 2).requires_grad and not (z * 2).detach().requires_grad


def test_other_methods_are_refused() -> None:
    z = Tensor([1j, 2.0])
    for f in (
        lambda: z.sort(),
        lambda: z < z,
        lambda: z.relu(),
        lambda: z.floor(),
        lambda: z // 2,
        lambda: z.maximum(z),
        lambda: svod.max(z),
        lambda: Tensor(np.array([1j]), dtype="f32"),
    ):
        with pytest.raises(DTypeError):
            f()


def test_plans_bind_complex_arrays(tmp_path: Path) -> None:
    z = Tensor(numbers((3,))).realize()
    plan = (z * 2j + 1).prepare(inputs={"z": z})
    assert [port.text() for port in plan.ports] == ["c64[3]", "c64[3]"]
    for a in (numbers((3,)), numbers((6,))[::2]):
        np.testing.assert_allclose(plan(z=a), a * 2j + 1, rtol=1e-6)
    out = np.zeros(3, np.complex64)
    plan.bind(output0=out)
    plan.execute()
    np.testing.assert_allclose(out, a * 2j + 1, rtol=1e-6)
    with pytest.raises(DTypeError, match=r"c64\[3\]"):
        plan.bind(z=np.zeros(3, np.complex128))
    plan.save(tmp_path / "plan")
    again = svod.load_plan(tmp_path / "plan")
    np.testing.assert_allclose(again(z=a), a * 2j + 1, rtol=1e-6)


def test_run_time_sizes() -> None:
    a = numbers((8,))
    n = svod.Variable("n", 1, 8)
    x = Tensor(a).realize()
    for size in (3, 8):
        np.testing.assert_allclose((x[: n.bind(size)] * 2).numpy(), a[:size] * 2)


def test_state_files(tmp_path: Path) -> None:
    from svod.nn.state import load_file, save_file

    a = numbers((2, 3))
    save_file({"z": Tensor(a), "x": Tensor([1.0])}, tmp_path / "state")
    found = load_file(tmp_path / "state")
    assert found["z"].dtype is complex64
    np.testing.assert_array_equal(found["z"].numpy(), a)


def test_functions_of_real_numbers_refuse_complex_operands_in_any_place() -> None:
    x, z = Tensor([1.0, 2.0]), Tensor([1j, 2j])
    for name in ("hypot", "maximum", "atan2", "copysign", "fmod", "smooth_l1_loss", "logaddexp2"):
        with pytest.raises(DTypeError, match=f"{name} takes real numbers, not complex64"):
            getattr(x, name)(z)
        with pytest.raises(DTypeError):
            getattr(z, name)(x)
    with pytest.raises(DTypeError):
        svod.cdist(x.reshape(1, 2), z.reshape(1, 2))
    with pytest.raises(DTypeError, match="view_as_real"):
        svod.custom_function("nothing", z)
    with pytest.raises(DTypeError, match="Parameter cannot hold complex numbers"):
        svod.nn.Parameter(z)
