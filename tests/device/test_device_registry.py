"""Device names and the registry."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from svod.base.errors import DeviceError
from svod.device.cpu.allocator import HostAllocator
from svod.device.device import Device
from svod.device.names import canonical
from svod.device.registry import (
    device_kinds,
    get_device,
    open_devices,
    register_device,
    unregister_device,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("CPU", "CPU"), ("cpu", "CPU"), ("CPU:0", "CPU"), (" Cpu:00 ", "CPU"), ("cpu:1", "CPU:1")],
)
def test_names_have_one_spelling(name: str, expected: str) -> None:
    assert canonical(name) == expected
    assert get_device(name) is get_device(expected)


def test_a_disk_name_keeps_the_case_of_its_path() -> None:
    assert canonical("disk:Some/File") == "DISK:" + os.path.abspath("Some/File")


@pytest.mark.parametrize("name", ["CPU:x", "CPU:-1", "CPU:", "CPU:1:2", "CPU:²"])
def test_an_index_must_be_a_whole_number(name: str) -> None:
    with pytest.raises(DeviceError, match="use a whole number, as in CPU:1"):
        get_device(name)


@pytest.mark.parametrize("name", ["", ":1", "C PU", "DISK", "DISK:"])
def test_malformed_names_are_refused(name: str) -> None:
    with pytest.raises(DeviceError, match=r"malformed|names no file"):
        get_device(name)


def test_an_unknown_device_lists_what_exists() -> None:
    with pytest.raises(DeviceError) as caught:
        get_device("tpu:2")
    assert str(caught.value).startswith("there is no device 'TPU:2': the devices are CPU, ")
    assert all(kind in str(caught.value) for kind in ("CPU", "DISK", "NULL", "REF"))


def test_two_cpu_devices_are_distinct_and_share_compiled_code() -> None:
    first, second = get_device("CPU:0"), get_device("CPU:1")
    assert first is not second
    assert first.allocator is not second.allocator
    assert first.name == "CPU"
    assert second.name == "CPU:1"
    assert first.base_device_key == second.base_device_key == "CPU"
    assert first.compiler is second.compiler


def test_null_compiles_as_the_cpu_does_and_loads_nothing() -> None:
    null, cpu = get_device("NULL"), get_device("CPU")
    assert null.compilers == cpu.compilers
    assert null.runtime is not cpu.runtime


@pytest.fixture
def toy() -> Iterator[list[str]]:
    made: list[str] = []

    def factory(name: str) -> Device:
        made.append(name)
        return Device(name, HostAllocator(name))

    register_device("TOY", factory)
    yield made
    unregister_device("TOY")


def test_devices_are_made_once_at_first_use(toy: list[str]) -> None:
    assert "TOY" in device_kinds()
    assert toy == []
    device = get_device("toy:3")
    assert get_device("TOY:3") is device
    assert toy == ["TOY:3"]
    assert device in open_devices()


def test_registering_again_replaces_the_devices(toy: list[str]) -> None:
    old = get_device("TOY")
    register_device("toy", lambda name: Device(name, HostAllocator(name)))
    assert get_device("TOY") is not old


def test_an_unregistered_kind_is_gone() -> None:
    register_device("BRIEF", lambda name: Device(name, HostAllocator(name)))
    get_device("BRIEF")
    unregister_device("BRIEF")
    with pytest.raises(DeviceError, match="there is no device 'BRIEF'"):
        get_device("BRIEF")
    with pytest.raises(DeviceError, match="'BRIEF' is not registered"):
        unregister_device("BRIEF")


@pytest.mark.parametrize("prefix", ["CPU:1", "", "a b"])
def test_a_kind_is_a_plain_name(prefix: str) -> None:
    with pytest.raises(DeviceError, match="is not a device kind"):
        register_device(prefix, lambda name: Device(name, HostAllocator(name)))


def test_files_do_not_stay_in_the_registry(tmp_path: object) -> None:
    name = f"DISK:{tmp_path}/a"
    device = get_device(name)
    assert get_device(name) is device
    assert device in open_devices()
    del device
    gc.collect()
    assert canonical(name) not in [d.name for d in open_devices()]


def test_holding_memory_loads_no_compiler() -> None:
    code = (
        "import sys; from svod.device.buffer import Buffer; from svod.dtype.types import float32;"
        "Buffer.new('CPU', 4, float32).allocate();"
        "print([m for m in sys.modules if m.startswith(('llvmlite', 'svod.codegen', 'ml_dtypes'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=os.getcwd()
    )
    assert done.stdout.strip() == "[]"


def test_what_makes_devices_is_a_function():
    with pytest.raises(TypeError, match="made by a function, not 'word'"):
        register_device("TOY", "word")
