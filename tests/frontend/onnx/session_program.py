"""A program over onnxruntime's interface; the module that has it is the only argument."""

from __future__ import annotations

from typing import Any

import numpy as np


def program(onnxruntime: Any, path: str, x: Any) -> dict[str, Any]:
    """Everything that programs do with a session, and what came of it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    found: dict[str, Any] = {
        "inputs": [(i.name, i.type, i.shape) for i in session.get_inputs()],
        "outputs": [(o.name, o.type, o.shape) for o in session.get_outputs()],
        "providers": session.get_providers(),
        "threads": session.get_session_options().intra_op_num_threads,
    }
    meta = session.get_modelmeta()
    found["meta"] = (
        meta.producer_name, meta.graph_name, meta.domain, meta.description, meta.version,
        meta.custom_metadata_map,
    )  # fmt: skip
    name = session.get_inputs()[0].name
    last = session.get_outputs()[-1].name
    found["all"] = session.run(None, {name: x})
    found["one"] = session.run([last], {name: x}, onnxruntime.RunOptions())
    found["other batch"] = session.run(None, {name: np.concatenate([x, x])})
    found["bound"] = _bound(onnxruntime, session, name, last, x)
    found["errors"] = [
        _fails(lambda: session.run(None, {})),
        _fails(lambda: session.run(None, {"nobody": x})),
        _fails(lambda: session.run(["nothing"], {name: x})),
        _fails(lambda: session.run(None, {name: x.astype(np.float64)})),
        _fails(lambda: session.run(None, {name: x[0]})),
    ]
    return found


def _bound(onnxruntime: Any, session: Any, name: str, last: str, x: Any) -> list[Any]:
    binding = session.io_binding()
    binding.bind_cpu_input(name, x)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    session.run_with_iobinding(binding)
    found = list(binding.copy_outputs_to_cpu())
    found += [v.numpy() for v in binding.get_outputs()]
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    value = onnxruntime.OrtValue.ortvalue_from_numpy(x)
    found.append(
        [value.shape(), value.data_type(), value.is_tensor(), value.element_type(),
         value.device_name()]
    )  # fmt: skip
    target = np.zeros_like(found[-2])
    binding.bind_ortvalue_input(name, value)
    binding.bind_output(last, "cpu", 0, np.float32, target.shape, target.ctypes.data)
    session.run_with_iobinding(binding)
    return [*found, target]


def _fails(work: Any) -> bool:
    try:
        work()
    except Exception:
        return True
    return False
