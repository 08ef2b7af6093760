"""The frameworks, each as a class that prepares a work and runs it on so many threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from svod.tools.bench.cpu.operators import (
    JaxOperators,
    NumpyOperators,
    SvodOperators,
    TorchOperators,
)
from svod.tools.bench.cpu.work import Work
from svod.tools.bench.models import Array

Shapes = list[tuple[int, ...]]


class Unsupported(Exception):
    """A framework cannot do a work at all."""


class Peer:
    """What all have in common. `variables` are set before the process starts."""

    name: ClassVar[str] = ""
    modules: ClassVar[tuple[str, ...]] = ()
    variables: ClassVar[dict[str, str]] = {}
    checks: ClassVar[bool] = True  # it gives results that can be compared

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def build(self, work: Work, outputs: Shapes, folder: str) -> Callable[[], Any]:
        """A function that computes the work once, and has finished when it returns."""
        raise NotImplementedError

    def arrays(self, found: Any) -> list[Array]:
        """The results as arrays."""
        parts = found if isinstance(found, (tuple, list)) else [found]
        return [np.asarray(part) for part in parts]

    def facts(self) -> dict[str, float]:
        """What is known of the prepared work beside its time."""
        return {}


class Svod(Peer):
    """One plan; where there are weights, they are frozen."""

    name, modules = "ours", ("svod",)
    variables: ClassVar = {"SVOD_THREADS": "{threads}"}

    def build(self, work: Work, outputs: Shapes, folder: str) -> Callable[[], Any]:
        import svod

        given = [svod.Tensor(array) for array in work.inputs]
        if work.dtype != "float32" and given[0].dtype.name != work.dtype:
            given = [x.cast(work.dtype).realize() for x in given]
        weights = {name: svod.Tensor(array) for name, array in work.weights.items()}
        made = work.run(SvodOperators(), weights, *given)
        self.made = made if isinstance(made, tuple) else (made,)
        self.plan = svod.prepare(*self.made, inputs=given, freeze=bool(weights))
        return self._run

    def _run(self) -> Any:
        self.plan.execute()
        return self.made

    def arrays(self, found: Any) -> list[Array]:
        return [part.numpy() for part in found]

    def facts(self) -> dict[str, float]:
        kernels = len(self.plan.prepared_kernels())
        return {"kernels": kernels, "scratch": self.plan.memory.planned_bytes}


class Machine(Peer):
    """No framework: what the machine does at best, multiplying and adding or reading."""

    name, modules = "machine", ("svod",)
    variables: ClassVar = {"SVOD_THREADS": "{threads}"}
    checks = False

    def build(self, work: Work, outputs: Shapes, folder: str) -> Callable[[], Any]:
        from svod.runtime.roofline import Limits

        self.limits = Limits(self.threads)
        return self.limits.read if work.flops < work.nbytes else self.limits.compute

    def facts(self) -> dict[str, float]:
        return {"flops": self.limits.flops, "nbytes": self.limits.nbytes}


class Numpy(Peer):
    name, modules = "numpy", ("numpy",)
    variables: ClassVar = {"OPENBLAS_NUM_THREADS": "{threads}", "OMP_NUM_THREADS": "{threads}"}

    def build(self, work: Work, outputs: Shapes, folder: str) -> Callable[[], Any]:
        if not work.has_numpy:
            raise Unsupported("nothing comparable")
        ops = NumpyOperators()
        return lambda: work.run(ops, work.weights, *work.inputs)


class Torch(Peer):
    """Eager."""

    name, modules = "torch", ("torch",)
    variables: ClassVar = {"OMP_NUM_THREADS": "{threads}", "MKL_NUM_THREADS": "{threads}"}

    def build(self, work: Work, outputs: Shapes, folder: str) -> Callable[[], Any]:
        import torch

        torch.set_num_threads(self.threads)
        torch.set_grad_enabled(False)
        ops = TorchOperators(torch)

        class Net(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                for name, array in work.weights.items():
                    value = torch.nn.Parameter(torch.from_numpy(array).clone(), False)
                    self.register_parameter(name, value)

            def forward(self, *inputs: Any) -> Any:
                weights = {name: getattr(self, name) for name in work.weights}
                return work.run(ops, weights, *inputs)

        given = [torch.from_numpy(array).clone() for array in work.inputs]
        if work.dtype == "bfloat16":
            given = [x.bfloat16() for x in given]
        net = self.wrapped(torch, Net().eval())
        return lambda: net(*given)

    def wrapped(self, torch: Any, net: Any) -> Any:
        return net

    def arrays(self, found: Any) -> list[Array]:
        parts = found if isinstance(found, (tuple, list)) else [found]
        return [
            part.float().numpy() if part.is_floating_point() else part.numpy() for part in parts
        ]


class TorchCompiled(Torch):
    """With weights frozen, as a deployer would."""

    name, modules = "torch.compile", ("torch",)
    variables: ClassVar = {**Torch.variables, "TORCHINDUCTOR_FREEZING": "1"}

    def wrapped(self, torch: Any, net: Any) -> Any:
        torch._dynamo.reset()
        return torch.compile(net)


class Jax(Peer):
    name, modules = "jax", ("jax",)
    variables: ClassVar = {
        "JAX_PLATFORMS": "cpu",
        "NPROC": "{threads}",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={threads}",
    }

    def build(self, work: Work, outputs: Shapes, folder: str) -> Callable[[], Any]:
        import jax

        ops = JaxOperators(jax)
        weights = {name: jax.device_put(array) for name, array in work.weights.items()}
        kind = jax.numpy.bfloat16 if work.dtype == "bfloat16" else None
        given = [jax.device_put(jax.numpy.asarray(a, kind)) for a in work.inputs]
        compiled = jax.jit(lambda weights, inputs: work.run(ops, weights, *inputs))
        return lambda: jax.block_until_ready(compiled(weights, given))


class OnnxRuntime(Peer):
    name, modules = "onnxruntime", ("onnxruntime", "onnx")

    def build(self, work: Work, outputs: Shapes, folder: str) -> Callable[[], Any]:
        import onnxruntime

        path = onnx_file(work, outputs, folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        binding = session.io_binding()
        self.held = [onnxruntime.OrtValue.ortvalue_from_numpy(a) for a in work.inputs]
        for port, value in zip(session.get_inputs(), self.held, strict=True):
            binding.bind_ortvalue_input(port.name, value)
        for port, shape in zip(session.get_outputs(), outputs, strict=True):
            value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), np.float32)
            binding.bind_ortvalue_output(port.name, value)

        def run() -> Any:
            session.run_with_iobinding(binding)
            return binding

        return run

    def arrays(self, found: Any) -> list[Array]:
        return list(found.copy_outputs_to_cpu())


class OpenVino(Peer):
    """In float32, not in the narrower type it prefers."""

    name, modules = "openvino", ("openvino", "onnx")

    def build(self, work: Work, outputs: Shapes, folder: str) -> Callable[[], Any]:
        import openvino

        settings = {
            "INFERENCE_NUM_THREADS": str(self.threads), "NUM_STREAMS": "1",
            "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32",
        }  # fmt: skip
        path = onnx_file(work, outputs, folder)
        request = openvino.Core().compile_model(path, "CPU", settings).create_infer_request()
        self.held = [openvino.Tensor(array, shared_memory=True) for array in work.inputs]
        for place, tensor in enumerate(self.held):
            request.set_input_tensor(place, tensor)

        def run() -> Any:
            request.infer(share_outputs=True)
            return request

        return run

    def arrays(self, found: Any) -> list[Array]:
        return [np.array(tensor.data) for tensor in found.output_tensors]


def onnx_file(work: Work, outputs: Shapes, folder: str) -> str:
    """The file of a work, which runtimes share."""
    import onnx

    from svod.tools.bench.cpu.onnx_graph import write_onnx

    if work.dtype != "float32":
        raise Unsupported(f"no file of {work.dtype}")
    path = os.path.join(folder, "work.onnx")
    if not os.path.exists(path):
        write_onnx(onnx, work, outputs, path)
    return path


PEERS: dict[str, type[Peer]] = {
    kind.name: kind
    for kind in (Svod, Machine, Numpy, Torch, TorchCompiled, Jax, OnnxRuntime, OpenVino)
}


def installed() -> list[str]:
    """The frameworks that are here, ours first, then the machine itself."""
    return [
        name
        for name, kind in PEERS.items()
        if all(find_spec(module) is not None for module in kind.modules)
    ]
