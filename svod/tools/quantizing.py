"""`svod quantize`: a language model in fewer bits, and what that cost in error."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from svod.tools.report import Report, table


def add_arguments(verb: argparse.ArgumentParser) -> None:
    """What is read, what is written, and in which format."""
    verb.add_argument("source", help="a GGUF file or a model folder, with weights that are floats")
    verb.add_argument("target", help="the GGUF file or folder to write")
    verb.add_argument(
        "--format", default="Q4_K", help="Q4_K, Q8_0, Q4_0, Q4_1, Q5_K, Q6_K, F16 or BF16"
    )


def quantize(options: argparse.Namespace) -> Report:
    """Write the model; a line for each tensor that was rounded."""
    from svod.llm.quantize import quantize as write

    made = write(options.source, options.target, options.format)
    data = {
        "path": made.path, "bytes_before": made.nbytes_before, "bytes": made.nbytes,
        "error": made.error, "tensors": [asdict(tensor) for tensor in made.tensors],
    }  # fmt: skip
    rows = [
        [t.name, t.format, f"{t.nbytes_before / t.nbytes:.2f}", f"{t.error:.4f}"]
        for t in made.tensors
        if t.error
    ]
    text = table([["tensor", "format", "times smaller", "error"], *rows], right=frozenset({2, 3}))
    total = f"{made.nbytes_before / 1e6:.1f} MB to {made.nbytes / 1e6:.1f} MB"
    return Report(data, f"{text}\n{made.path}: {total}, error {made.error:.4f} of the weights")
