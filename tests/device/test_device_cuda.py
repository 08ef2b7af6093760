"""What can be known of CUDA without a GPU: errors, names, the table of calls."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from svod import Tensor
from svod.base.errors import CompileError, DeviceError
from svod.device.cuda import driver as module
from svod.device.cuda.compiler import architecture
from svod.device.cuda.driver import SIGNATURES, Driver, DriverFault, is_available
from svod.device.names import device_number


class Library:
    """A driver library whose calls all give one code."""

    def __init__(self, code: int, missing: str = "") -> None:
        for name in SIGNATURES:
            if name != missing:
                setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int)(lambda: code))
        self.cuGetErrorName = self._say(b"CUDA_ERROR_OUT_OF_MEMORY")
        self.cuGetErrorString = self._say(b"out of memory")

    @staticmethod
    def _say(text: bytes) -> Any:
        def say(code: Any, place: Any) -> int:
            place._obj.value = text
            return 0

        return say


@pytest.mark.skipif(is_available(), reason="there is a GPU")
def test_asking_for_cuda_without_a_driver_is_an_error() -> None:
    with pytest.raises(DeviceError, match="CUDA is not available"):
        Tensor([1.0], device="CUDA").realize()
    with pytest.raises(DeviceError, match="CUDA is not available"):
        Tensor([1.0]).to("CUDA:1").realize()


def test_a_call_that_fails_says_its_name_the_code_and_the_reason() -> None:
    found = Driver(Library(2))
    with pytest.raises(DriverFault) as caught:
        found.call("cuCtxSynchronize")
    assert str(caught.value) == (
        "cuCtxSynchronize failed with CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"
    )
    assert caught.value.code == 2
    assert isinstance(caught.value, DeviceError)


def test_a_driver_that_lacks_a_call_is_too_old() -> None:
    with pytest.raises(DeviceError, match="has no cuGraphLaunch: it is older than CUDA 12"):
        Driver(Library(0, missing="cuGraphLaunch"))


def test_no_library_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIBRARIES", ("libno-such-driver.so",))
    module.driver.cache_clear()
    with pytest.raises(DeviceError, match=r"no driver library was found .*use device CPU"):
        module.driver()
    module.driver.cache_clear()


def test_names_number_the_gpus() -> None:
    assert [device_number(n) for n in ("CUDA", "cuda:0", "CUDA:3")] == [0, 0, 3]


def test_architectures_are_the_newest_a_gpu_runs() -> None:
    assert architecture((9, 0)) == "sm_90a"
    assert architecture((8, 6)) == "sm_86"
    assert architecture((8, 7)) == "sm_86"
    with pytest.raises(CompileError, match=r"compute capability 6\.1 is too old"):
        architecture((6, 1))
