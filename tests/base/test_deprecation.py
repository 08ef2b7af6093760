"""Names that go away: they warn at the line of the caller, work until then, and go in time."""

from __future__ import annotations

import warnings

import pytest

import svod
from svod.base import deprecation
from svod.base.deprecation import Deprecation, SvodDeprecationWarning, deprecated, version
from svod.errors import SvodWarning


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    monkeypatch.setattr(deprecation, "known", list(deprecation.known))


def test_an_old_name_of_the_namespace_warns_and_works():
    with pytest.warns(SvodDeprecationWarning) as found:
        value = svod.plan
    assert value is svod.prepare and "plan" not in dir(svod)
    text = "svod.plan is deprecated since 0.1 and will be gone in 0.3: use svod.prepare"
    assert str(found[0].message) == text and found[0].filename == __file__


def test_a_deprecated_function_warns_at_each_call_and_works():
    @deprecated("old", "new", since="0.1", until="0.2")
    def old(x: int) -> int:
        return x + 1

    with pytest.warns(DeprecationWarning, match=r"old is deprecated since 0\.1") as found:
        assert old(1) == 2
    assert found[0].filename == __file__ and old.__name__ == "old"
    assert issubclass(SvodDeprecationWarning, SvodWarning)


def test_names_that_stay_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert svod.prepare is not None and svod.realize is not None


def test_a_name_goes_after_it_has_warned():
    with pytest.raises(ValueError, match=r"warns since 0\.3 and is gone in 0\.3"):
        Deprecation("old", "new", since="0.3", until="0.3")


def test_versions_compare_as_numbers():
    assert version("0.10.1") > version("0.9") and version("1.0") > version("0.99")


def overdue(now: str) -> list[str]:
    return [d.name for d in deprecation.known if version(d.until) <= version(now)]


def test_nothing_is_left_that_should_be_gone():
    assert {"svod.plan", "svod.run"} <= {d.name for d in deprecation.known}
    assert overdue(svod.__version__) == [], "remove them: their last version is over"
    assert overdue("0.3") != []
