"""Special functions beside values of forty digits, and gradients that torch has not."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.tensor.gradients.autograd import GradientError
from svod.testing import gradcheck

PLACES = [0.001, 0.5, 2.0, 5.5, 6.25, 9.75, 14.0, 24.5, 25.5, 100.0, 3000.0]
BESSEL = {
    "bessel_j0": [
        0.9999997500000156, 0.9384698072408129, 0.22389077914123567, -0.006843869417819197,
        0.21309005307666073, -0.22733329951184827, 0.17107347611045867, 0.0236974337340679,
        0.14406215754684787, 0.019985850304223122, -0.0077918452618899,
    ],
    "bessel_j1": [
        0.0004999999375000026, 0.2422684576748739, 0.5767248077568734, -0.34143821542904335,
        -0.22072087753923728, 0.10483850125849752, 0.13337515469879324, -0.1589784118193281,
        -0.062048536491484105, -0.07714535201411216, 0.012306980664764856,
    ],
    "bessel_y0": [
        -4.471416611375923, -0.44451873350670656, 0.5103756726497451, -0.339480592881911,
        -0.23693546237904967, 0.11631637041489998, 0.1271925685821837, -0.15942871774975043,
        -0.06485976549878349, -0.07724431336508315, 0.012308279134657473,
    ],
    "bessel_y1": [
        -636.6221672311394, -1.471472392670243, -0.10703243154093754, -0.023758238956389618,
        -0.2325897416925122, 0.23357731487353176, -0.16664484185617226, -0.026954655331885412,
        -0.1453610587230494, -0.020372312002759792, 0.007793896749908748,
    ],
    "modified_bessel_k0": [
        7.023688800562382, 0.9244190712276659, 0.11389387274953344, 0.0021387085659502875,
        0.0009499365977602127, 2.3114134549106614e-05, 2.76137082398162e-07,
        5.768856182529219e-12, 2.080615357164279e-12, 4.656628229175902e-45, 0.0,
    ],
    "modified_bessel_k1": [
        999.9962381560856, 1.656441120003301, 0.13986588181652243, 0.0023255690088490053,
        0.0010232855886346353, 2.4271784093484018e-05, 2.85834365344025e-07,
        5.885432744756932e-12, 2.1210265673146657e-12, 4.6798537356369095e-45, 0.0,
    ],
}  # fmt: skip
# a, x, the lower and the upper function
GAMMA = [
    (0.1, 0.05, 0.7755386354510305, 0.22446136454896942),
    (3.5, 12.0, 0.9988606488210525, 0.0011393511789474656),
    (19.5, 29.0, 0.9743825346624174, 0.025617465337582596),
    (21.0, 19.0, 0.35282563476349993, 0.6471743652365001),
    (33.68, 26.84, 0.11296370558093208, 0.887036294419068),
    (75.0, 110.0, 0.9998281696575663, 0.00017183034243375614),
    (4000.0, 4100.0, 0.9421881762120625, 0.05781182378793743),
]
SHARES = {
    1e-100: -21.273453560965326, 1e-10: -6.361340902404057, 0.02: -2.053748910631823,
    0.3: -0.5244005127080408, 0.75: 0.6744897501960817, 0.999: 3.090232306167813,
}  # fmt: skip


ERFINV = {
    1e-300: 8.86226925452758e-301, 1e-10: 8.862269254527581e-11, 0.1: 0.08885599049425769,
    0.5: 0.4769362762044699, 0.75: 0.8134198475976185, 0.76: 0.8308411284745602,
    0.9: 1.1630871536766743, 0.99: 1.8213863677184494, 0.999999: 3.458910737275499,
    0.9999999999: 4.572824958544925, 0.9999999999999999: 5.8635847487551676,
}  # fmt: skip
ERFC = {
    -6.0: 2.0, -1.0: 1.8427007929497148, 1e-20: 1.0, 0.5: 0.4795001221869535,
    1.0: 0.15729920705028513, 3.3: 3.0577097964381654e-06, 7.7: 1.2942740067717136e-27,
    12.3: 9.029925149482068e-68, 20.1: 9.735977140428878e-178, 25.9: 1.0202833184732667e-293,
    26.5: 2.2109076642637343e-307,
}  # fmt: skip


@pytest.mark.parametrize(("name", "exact"), [("erfinv", ERFINV), ("erfc", ERFC)])
def test_error_functions_are_exact(name: str, exact: dict[float, float]) -> None:
    x, y = np.array(list(exact)), np.array(list(exact.values()))
    np.testing.assert_allclose(getattr(svod, name)(Tensor(x)).numpy(), y, rtol=1e-15)
    if name == "erfinv":
        np.testing.assert_allclose(svod.erfinv(Tensor(-x)).numpy(), -y, rtol=1e-15)


@pytest.mark.parametrize("name", ["erfinv", "erfc"])
def test_error_functions_of_float32_are_rounded_once(name: str) -> None:
    rng = np.random.default_rng(0)
    near = 1 - 10.0 ** rng.uniform(-7.3, 0, 20000)
    x = near if name == "erfinv" else np.concatenate([rng.uniform(-4, 9, 20000), near])
    single = x.astype(np.float32)
    single = single[np.abs(single) < 1] if name == "erfinv" else single
    got = getattr(svod, name)(Tensor(single)).numpy()
    exact = getattr(svod, name)(Tensor(single.astype(np.float64))).numpy()
    places = np.spacing(np.abs(exact.astype(np.float32)))
    assert (np.abs(got - exact) / places).max() < 0.52


def test_error_functions_at_their_ends() -> None:
    inf, nan = np.inf, np.nan
    for kind in (np.float32, np.float64):
        ends = svod.erfinv(Tensor(np.array([1, -1, 0, -0.0, 2, nan], kind))).numpy()
        np.testing.assert_array_equal(ends, [inf, -inf, 0, 0, nan, nan])
        assert np.signbit(ends[3]) and not np.signbit(ends[2])
        far = svod.erfc(Tensor(np.array([inf, -inf, 0, nan, 40, -40], kind))).numpy()
        np.testing.assert_array_equal(far, [0, 2, 1, nan, 0, 2])


@pytest.mark.parametrize("name", BESSEL)
def test_bessel_functions_are_exact(name: str) -> None:
    found = getattr(svod.special, name)(Tensor(np.array(PLACES))).numpy()
    np.testing.assert_allclose(found, BESSEL[name], rtol=2e-13, atol=2e-15)


def test_incomplete_gamma_functions_are_exact() -> None:
    a, x, lower, upper = np.array(GAMMA).T
    np.testing.assert_allclose(svod.igamma(Tensor(a), Tensor(x)).numpy(), lower, rtol=1e-12)
    np.testing.assert_allclose(svod.igammac(Tensor(a), Tensor(x)).numpy(), upper, rtol=1e-11)


def test_the_quantile_of_a_normal_distribution_is_exact() -> None:
    found = svod.special.ndtri(Tensor(np.array(list(SHARES)))).numpy()
    np.testing.assert_allclose(found, list(SHARES.values()), rtol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        *BESSEL,
        "scaled_modified_bessel_k0",
        "scaled_modified_bessel_k1",
        "spherical_bessel_j0",
    ],
)
def test_gradients_of_bessel_functions(name: str) -> None:
    x = Tensor(np.array([0.4, 1.5, 3.0, 7.0, 12.0, 26.0]))
    gradcheck(getattr(svod.special, name), [x], rtol=1e-4, atol=1e-7)


def test_functions_that_are_even_or_odd() -> None:
    x = Tensor(np.array(PLACES))
    for name, sign in (("bessel_j0", 1), ("bessel_j1", -1), ("i1e", -1)):
        function = getattr(svod.special, name)
        assert np.array_equal(function(-x).numpy(), sign * function(x).numpy())


@pytest.mark.parametrize("name", ["gammainc", "gammaincc", "zeta"])
def test_a_gradient_that_is_missing_is_refused(name: str) -> None:
    a, x = [Tensor(np.array([2.0, 3.0]), requires_grad=True) for _ in range(2)]
    found = getattr(svod.special, name)(a, x)
    with pytest.raises(GradientError, match="no gradient for input"):
        found.sum().backward()
    alone = getattr(svod.special, name)(a.detach(), x)
    alone.sum().backward()
    assert x.grad is not None and np.isfinite(x.grad.numpy()).all()
