"""Which devices can be used here, and what happens with those that cannot."""

from __future__ import annotations

import pytest

import svod
from svod import Tensor, nn
from svod.base.errors import DeviceError
from svod.device.cuda import driver


def test_devices_lists_what_computes_here() -> None:
    found = svod.devices()
    assert found[0] == "CPU" and "REF" in found
    assert not {"DISK", "NULL"} & set(found)
    assert len([name for name in found if name.startswith("CUDA")]) == svod.cuda.device_count()
    for name in found:
        assert (Tensor([1.0, 2.0]).to(name) * 2).tolist() == [2, 4]
    assert set(svod.__array_namespace_info__().devices()) <= set(found)


def test_is_available_and_device_count_agree() -> None:
    assert svod.cuda.is_available() == (svod.cuda.device_count() > 0)


def test_every_gpu_the_driver_sees_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "device_count", lambda: 2)
    assert [name for name in svod.devices() if name.startswith("CUDA")] == ["CUDA", "CUDA:1"]


@pytest.mark.parametrize(
    "use",
    [
        lambda: Tensor([1.0]).to("GPU"),
        lambda: svod.zeros(3, device="GPU"),
        lambda: svod.rand(3, device="gpu:1"),
        lambda: nn.Linear(2, 2).to("GPU"),
        lambda: Tensor([1.0], device="GPU"),
    ],
)
def test_an_unknown_device_is_refused_at_the_call(use: object) -> None:
    with pytest.raises(
        DeviceError, match=r"there is no device 'GPU(:1)?': the devices are CPU, CU"
    ):
        use()  # type: ignore[operator]


@pytest.mark.skipif(driver.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    "use",
    [
        lambda: Tensor([1.0]).cuda(),
        lambda: svod.ones(3).cuda(),
        lambda: svod.ones(3).to("CUDA:1"),
        lambda: svod.zeros(3, device="CUDA"),
        lambda: nn.Linear(2, 2).cuda(),
    ],
)
def test_a_gpu_that_is_not_there_is_refused_at_the_call(use: object) -> None:
    with pytest.raises(DeviceError, match="CUDA is not available"):
        use()  # type: ignore[operator]
