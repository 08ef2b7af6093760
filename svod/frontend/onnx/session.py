"""`InferenceSession`: the methods of onnxruntime's, so that a program changes one import.

    import svod.onnx as onnxruntime

Names, types and shapes are as onnxruntime gives them, and so are the errors' meaning: a missing or
unknown input is a ValueError. Settings of how onnxruntime schedules its work (`SessionOptions`) are
taken and have no effect; threads are those of SVOD_THREADS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import svod
from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.file import ValueInfo
from svod.frontend.onnx.model import load
from svod.frontend.onnx.ortvalue import OrtValue, type_name

_PROVIDERS = {"CPUExecutionProvider": "CPU", "CUDAExecutionProvider": "CUDA"}


class NodeArg(NamedTuple):
    """An input or an output as onnxruntime describes it."""

    name: str
    type: str
    shape: list[int | str | None]


class ModelMetadata(NamedTuple):
    """What a file says of itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    version: int
    custom_metadata_map: dict[str, str]


class GraphOptimizationLevel:
    """Levels of onnxruntime's optimiser; there is one here, which is always on."""

    ORT_DISABLE_ALL, ORT_ENABLE_BASIC, ORT_ENABLE_EXTENDED, ORT_ENABLE_ALL = 0, 1, 2, 99


class ExecutionMode:
    """Whether independent nodes run side by side; plans decide that themselves."""

    ORT_SEQUENTIAL, ORT_PARALLEL = 0, 1


class SessionOptions:
    """Settings that programs give to onnxruntime; they have no effect here."""

    def __init__(self) -> None:
        self.intra_op_num_threads = self.inter_op_num_threads = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.log_severity_level, self.log_verbosity_level, self.logid = 2, 0, ""
        self.enable_profiling, self.profile_file_prefix = False, ""
        self.enable_mem_pattern = self.enable_cpu_mem_arena = self.enable_mem_reuse = True
        self.optimized_model_filepath = ""
        self.use_deterministic_compute = False
        self._entries: dict[str, str] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        return self._entries[key]

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix a size that the file names, like ``dims`` of the session."""
        self.dims: dict[str, int] = {**getattr(self, "dims", {}), name: size}


class RunOptions:
    """Settings of one run; they have no effect here."""

    def __init__(self) -> None:
        self.log_severity_level, self.log_verbosity_level, self.logid = 2, 0, ""
        self.terminate = self.only_execute_path_to_fetches = False


def get_available_providers() -> list[str]:
    """What a session can be asked to run on."""
    found = {name.split(":")[0] for name in svod.devices()}
    return [name for name, device in reversed(_PROVIDERS.items()) if device in found]


def get_device() -> str:
    """What sessions run on unless told otherwise: "GPU" or "CPU"."""
    return "GPU" if "CUDAExecutionProvider" in get_available_providers() else "CPU"


class InferenceSession:
    """A model behind onnxruntime's interface."""

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Any = None,
        *,
        dims: Mapping[str, Any] | None = None,
        device: str | None = None,
        **others: Any,
    ) -> None:
        self._options = sess_options or SessionOptions()
        names = [p if isinstance(p, str) else p[0] for p in providers or ()]
        usable = [n for n in names if n in get_available_providers()]
        if names and not usable and device is None:
            raise OnnxError(
                f"none of {names} is here; there are {', '.join(get_available_providers())}"
            )
        device = device or (_PROVIDERS[usable[0]] if usable else None)
        self._provider_options = dict(zip(names, provider_options or [], strict=False))
        sizes = {**getattr(self._options, "dims", {}), **(dims or {})}
        self.model = load(path_or_bytes, sizes, device)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Any]:
        """The outputs of these names, or all, for arrays by name."""
        known = [i.name for i in self.model.inputs]
        unknown = [n for n in input_feed if n not in known]
        if unknown:
            raise OnnxError(f"{unknown[0]!r} is no input of the model: {', '.join(known)}")
        missing = [i.name for i in self.model.inputs if i.name not in input_feed]
        missing = [n for n in missing if not self._is_optional(n)]
        if missing:
            raise OnnxError(f"the inputs {', '.join(missing)} are missing")
        results = self.model.run({n: _array(v) for n, v in input_feed.items()})
        found = dict(zip([o.name for o in self.model.outputs], results, strict=True))
        absent = [n for n in output_names or () if n not in found]
        if absent:
            raise OnnxError(f"{absent[0]!r} is no output of the model: {', '.join(found)}")
        return [found[n] for n in output_names or found]

    def _is_optional(self, name: str) -> bool:
        return any(i.name == name and i.form == "optional" for i in self.model.inputs)

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[OrtValue]:  # fmt: skip
        return [OrtValue(v) for v in self.run(output_names, input_dict_ort_values)]

    def get_inputs(self) -> list[NodeArg]:
        return [_argument(i) for i in self.model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        return [_argument(o) for o in self.model.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: initialisers are constants here."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        message = self.model.file.message
        entries = {e.key: e.value for e in message.metadata}
        return ModelMetadata(
            message.producer_name, message.graph.name, message.domain, message.doc_string,
            message.model_version, entries,
        )  # fmt: skip

    def get_session_options(self) -> Any:
        return self._options

    def get_providers(self) -> list[str]:
        """Where it runs, by onnxruntime's names; the CPU takes what is left over."""
        device = (self.model.device or svod.default_device()).split(":")[0].upper()
        names = [n for n, d in _PROVIDERS.items() if d == device]
        return list(dict.fromkeys([*names, "CPUExecutionProvider"]))

    def get_provider_options(self) -> dict[str, Any]:
        return {name: self._provider_options.get(name, {}) for name in self.get_providers()}

    def enable_fallback(self) -> None:
        """Nothing falls back: what is not supported is an error when the model is loaded."""

    disable_fallback = enable_fallback

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run with what is bound; outputs that were given memory are written to it."""
        names = list(iobinding.wanted) or [o.name for o in self.model.outputs]
        for name, value in zip(names, self.run(names, iobinding.feeds), strict=True):
            target = iobinding.wanted.get(name)
            if target is not None:
                if target.shape != value.shape or target.dtype != value.dtype:
                    raise OnnxError(
                        f"output {name!r} is {value.dtype}{list(value.shape)}, bound is memory of "
                        f"{target.dtype}{list(target.shape)}"
                    )
                np.copyto(target, value)
            iobinding.results[name] = value if target is None else target


class IOBinding:
    """Arrays bound to inputs and outputs by name."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self.feeds: dict[str, Any] = {}
        self.wanted: dict[str, Any] = {}  # arrays to write to; None where there is none
        self.results: dict[str, Any] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        self.feeds[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self.feeds[name] = ortvalue.numpy()

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:  # fmt: skip
        self.feeds[name] = _at(device_type, element_type, shape, buffer_ptr)

    def bind_output(
        self, name: str, device_type: Any = "cpu", device_id: int = 0, element_type: Any = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:  # fmt: skip
        """An output to compute; into an array, or memory at an address, where one is given."""
        if isinstance(device_type, np.ndarray):
            self.wanted[name] = device_type
        elif buffer_ptr is not None and shape is not None:
            self.wanted[name] = _at(device_type, element_type, shape, buffer_ptr)
        else:
            self.wanted[name] = None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self.wanted[name] = ortvalue.numpy()

    def copy_outputs_to_cpu(self) -> list[Any]:
        return [np.array(value) if isinstance(value, np.ndarray) else value
                for value in self.results.values()]  # fmt: skip

    def get_outputs(self) -> list[OrtValue]:
        return [OrtValue(value) for value in self.results.values()]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        return self.get_outputs()

    def synchronize_inputs(self) -> None:
        """Nothing is under way: what is bound is read while running."""

    synchronize_outputs = synchronize_inputs

    def clear_binding_inputs(self) -> None:
        self.feeds.clear()

    def clear_binding_outputs(self) -> None:
        self.wanted.clear()
        self.results.clear()


def _argument(info: ValueInfo) -> NodeArg:
    return NodeArg(info.name, type_name(info), list(info.shape or ()))


def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, OrtValue) else value


def _at(device: str, element_type: Any, shape: Sequence[int], address: int) -> Any:
    """The array at an address of the host's memory, which the caller keeps alive."""
    import ctypes

    if str(device).split(":")[0].lower() != "cpu":
        raise OnnxError(f"memory of {device!r} cannot be bound: give memory of the CPU")
    dtype = np.dtype(element_type)
    size = int(np.prod(list(shape), dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_ubyte * size).from_address(int(address))
    return np.frombuffer(memory, dtype).reshape(tuple(shape))
