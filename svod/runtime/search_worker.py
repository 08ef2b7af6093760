"""A process that compiles candidates of a search, so that one that hangs can be ended.

In, on stdin: frames with the text of a kernel after its opts. Out, on stdout: one frame per kernel,
with object code or the reason why there is none. A frame is two lengths, a JSON object and bytes.
The process ends when its stdin does; it never runs what it compiled.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from typing import Any, BinaryIO

_LENGTHS = struct.Struct("<II")


def write_frame(stream: BinaryIO, head: dict[str, Any], blob: bytes = b"") -> None:
    """Send one frame."""
    text = json.dumps(head).encode()
    stream.write(_LENGTHS.pack(len(text), len(blob)) + text + blob)
    stream.flush()


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """The next frame; None where the other side has ended."""
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    head_length, blob_length = _LENGTHS.unpack(lengths)
    data = stream.read(head_length + blob_length)
    if len(data) < head_length + blob_length:
        return None
    return json.loads(data[:head_length]), data[head_length:]


def main() -> None:
    """Answer frames until there are no more."""
    source = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a compiler prints must not get between the frames
    from svod.codegen.targets.cpu import cpu_target  # noqa: F401  # all that compiling needs is loaded now
    from svod.device.cpu.compiler import emit_object  # noqa: F401

    write_frame(answers, {"ready": True})
    while (frame := read_frame(source)) is not None:
        head, text = frame
        try:
            answer, binary = compile_candidate(head, text.decode())
        except Exception as problem:
            answer, binary = {"drop": "panic_in_worker", "detail": _brief(problem)}, b""
        write_frame(answers, {**answer, "job": head.get("job")}, binary)


def compile_candidate(head: dict[str, Any], text: str) -> tuple[dict[str, Any], bytes]:
    """Object code of a kernel, or the reason and the stage at which it failed."""
    if "arch" in head:
        return _compile_for_gpu(head, text)
    from svod.codegen.linearize import flat
    from svod.codegen.pipeline import generate_from
    from svod.codegen.targets.cpu import cpu_target
    from svod.device.cpu.compiler import emit_object
    from svod.device.cpu.host import host_machine
    from svod.ir import ops as O
    from svod.ir.text import parse
    from svod.optimize.beam import top_operations

    sink = parse(text)
    try:
        code = generate_from(sink, sink, (), cpu_target(host_machine()), head["name"])
    except Exception as problem:
        return {"drop": "linearize_err", "detail": _brief(problem)}, b""
    linear = flat(code.loops)
    if len(linear) > head["max_uops"]:
        kinds = top_operations([O.NAMES[n.op] for n in linear])
        detail = f"linear={len(linear)} max={head['max_uops']} top_ops=[{kinds}]"
        return {"drop": "too_many_uops", "detail": detail}, b""
    try:
        return {"uops": len(linear)}, emit_object(code.text().source)
    except Exception as problem:
        return {"drop": "compile_err", "detail": _brief(problem)}, b""


def _compile_for_gpu(head: dict[str, Any], source: str) -> tuple[dict[str, Any], bytes]:
    """PTX of a kernel; the driver assembles it here once and keeps the machine code on disk."""
    from svod.base.errors import DeviceError
    from svod.device.cuda.compiler import emit_ptx
    from svod.device.cuda.driver import DriverFault, context, is_available

    try:
        ptx = emit_ptx(source, head["arch"]).encode()
    except Exception as problem:
        return {"drop": "compile_err", "detail": _brief(problem)}, b""
    if is_available():
        try:
            driver = context(head["gpu"]).use()
        except DeviceError:
            return {}, ptx  # a GPU for one process alone: the process that searches assembles
        try:
            driver.call("cuModuleUnload", driver.load_module(ptx))
        except DriverFault as problem:
            return {"drop": "compile_err", "detail": _brief(problem)}, b""
    return {}, ptx


def _brief(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"[:500]


if __name__ == "__main__":
    main()
