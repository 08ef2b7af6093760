"""What the verbs over models share: their arguments, the model, and arrays for its inputs.

A model is an ONNX file or a saved plan (``.svod``). Nothing heavy is imported before a verb runs.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from svod.base.errors import ArgumentError
from svod.base.progress import watch

PLAN_SUFFIX = ".svod"


def add_arguments(verb: argparse.ArgumentParser, name: str) -> None:
    """The grammar of a verb over models."""
    what = {"profile": "an ONNX file, a plan (.svod) or a script (.py)", "bench": "an ONNX file"}
    what |= {"compile": "an ONNX file"}
    if name != "viz":  # which says what it shows itself
        verb.add_argument("model", help=what.get(name, "an ONNX file or a plan (.svod)"))
    verb.add_argument(
        "--dim", action="append", default=[], metavar="NAME=SIZE", type=_dimension,
        help="a size that the file names, as a number or a range: batch=8 or batch=1:64",
    )  # fmt: skip
    verb.add_argument("--device", help="where it runs (default CPU, or SVOD_DEVICE)")
    verb.add_argument(
        "--trusted", action="store_true", help="run machine code of a plan that another user saved"
    )
    if name in ("run", "bench", "profile"):
        verb.add_argument(
            "--input", action="append", default=[], metavar="NAME=FILE", type=_pair,
            help="the .npy file with an input"
            + ("" if name == "run" else "; random numbers where none is given"),
        )  # fmt: skip
    if name == "run":
        verb.add_argument("--random", action="store_true", help="random numbers for other inputs")
        verb.add_argument("--output-dir", metavar="FOLDER", help="write outputs as .npy files here")
    if name == "compile":
        verb.add_argument("-o", "--output", required=True, metavar="FILE", help="the plan to write")
        verb.add_argument("--portable", action="store_true", help="graphs in place of machine code")
    if name == "explain":
        verb.add_argument("--code", action="store_true", help="also the kernels as C-like text")
    if name == "bench":
        verb.add_argument("--seconds", type=_seconds, default=2.0, help="for each runtime")
    if name == "profile":
        verb.add_argument("--runs", type=_count, default=10, help="runs of the model (default 10)")
        verb.add_argument("--trace", metavar="FILE", help="write a trace that Perfetto opens")
        verb.add_argument(
            "--by", choices=("kernel", "module", "line"), default="kernel", help="what times are of"
        )
    if name in ("profile", "viz"):
        verb.add_argument("arguments", nargs="*", help="of a script")


def is_plan(path: str) -> bool:
    return path.endswith(PLAN_SUFFIX)


def require_file(path: str) -> None:
    if not os.path.isfile(path):
        raise ArgumentError(f"there is no file {path!r}")


def open_model(options: argparse.Namespace) -> Any:
    """The ONNX model that the command line names."""
    require_file(options.model)
    from svod.frontend.onnx import load

    return load(options.model, dict(options.dim), options.device)


def open_plan(options: argparse.Namespace) -> Any:
    """The saved plan that the command line names."""
    require_file(options.model)
    if options.dim:
        raise ArgumentError("a plan has its sizes already: --dim is for ONNX files")
    from svod.runtime.load import load_plan

    return load_plan(options.model, trusted=options.trusted)


def prepared(model: Any, name: str) -> Any:
    """The plan of a model, with a line on the terminal while it is compiled; None for none."""
    from svod.frontend.onnx import OnnxError, UnsupportedError

    with watch(f"compiling {os.path.basename(name)}"):
        try:
            return model.plan
        except UnsupportedError:
            raise
        except OnnxError:
            if not model.notes:  # no plan for all sizes is no error: the notes say why
                raise
            return None


def given_arrays(pairs: Sequence[tuple[str, str]], known: Sequence[str]) -> dict[str, Any]:
    """The arrays of ``--input`` options."""
    import numpy as np

    found: dict[str, Any] = {}
    for name, path in pairs:
        if name not in known:
            raise ArgumentError(
                f"{name!r} is no input of the model, which has {', '.join(known) or 'none'}"
            )
        try:
            found[name] = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ArgumentError(f"--input {name}={path}: {error}") from None
        if not isinstance(found[name], np.ndarray):
            raise ArgumentError(f"--input {name}={path}: an archive of arrays, not one array")
    return found


def model_arrays(model: Any, options: argparse.Namespace, fill: bool) -> dict[str, Any]:
    """An array for each input of a model; random ones where none is given and ``fill`` says so."""
    import numpy as np

    found = given_arrays(options.input, [i.name for i in model.inputs])
    missing = [i for i in model.inputs if i.name not in found]
    if missing and not fill:
        names = " ".join([f"--input {i.name}=FILE" for i in missing])
        raise ArgumentError(f"inputs are missing: give {names}, or --random")
    sizes = known_sizes(model.inputs, found, dict(options.dim))
    generator = np.random.default_rng(0)
    for info in missing:
        if info.form != "tensor" or info.shape is None:
            raise ArgumentError(f"input {info.name!r} is {info.type}: give it with --input")
        names = [size_name(info, axis) for axis in range(len(info.shape))]
        shape = [sizes.get(n, 1) if isinstance(n, str) else n for n in names]
        found[info.name] = random_array(generator, shape, info.dtype)
    return found


def size_name(info: Any, axis: int) -> int | str:
    """A size of an input: the number, or the name that ``--dim`` calls it."""
    size = info.shape[axis]
    return f"{info.name}.{axis}" if size is None else size


def known_sizes(
    inputs: Sequence[Any], arrays: Mapping[str, Any], dims: Mapping[str, Any]
) -> dict[str, int]:
    """Sizes by name: those of given arrays, else what --dim says; of a range the largest."""
    found = {n: d if isinstance(d, int) else d[1] for n, d in dims.items()}
    for info in inputs:
        if info.name in arrays and info.shape is not None:
            for axis, size in enumerate(arrays[info.name].shape[: len(info.shape)]):
                name = size_name(info, axis)
                if isinstance(name, str):
                    found[name] = size
    return found


def random_array(generator: Any, shape: Sequence[int], dtype: Any) -> Any:
    """Numbers that a model can make something of: floats around 0, else zeros and ones."""
    import numpy as np

    dtype = np.dtype(dtype)
    if dtype.kind == "O":
        return np.full(shape, "", object)
    if dtype.kind in "iub":
        return generator.integers(0, 2, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def shape_text(shape: Sequence[Any] | None) -> str:
    return "?" if shape is None else f"[{', '.join(['?' if n is None else str(n) for n in shape])}]"


def file_name(name: str) -> str:
    """A name of a value as the name of a file."""
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or "output"


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE")
    return name, value


def _dimension(text: str) -> tuple[str, int | tuple[int, int]]:
    name, _, value = text.partition("=")
    found = re.fullmatch(r"(\d{1,18})(?::(\d{1,18}))?", value)
    if not name or found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE or NAME=FROM:TO")
    low, high = int(found[1]), int(found[2] or found[1])
    if low > high or high < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: the range is empty")
    return name, low if found[2] is None else (low, high)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not a time from 0 to 3600 s")
    return value


def _count(text: str) -> int:
    value = int(text)
    if not 0 < value <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text} is not a number of runs")
    return value
