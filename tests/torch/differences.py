"""Where Svod differs from torch on purpose, each with its reason."""

from __future__ import annotations

# (name, form): the function of the namespace follows the array API standard, not torch
STANDARD: set[tuple[str, str]] = {
    ("sort", "t"), ("argsort", "t"), ("max", "t"), ("min", "t"), ("var", "t"), ("std", "t"),
    ("unique", "t"), ("nonzero", "t"), ("equal", "t"), ("squeeze", "t"),
}  # fmt: skip

# (name, dtype in torch): dtype here
DTYPES: dict[tuple[str, str], str] = {
    ("any", "uint8"): "bool",  # torch keeps uint8 for the sake of old programs
    ("all", "uint8"): "bool",
}

# (name, form): why it is not offered
LEFT_OUT: dict[tuple[str, str], str] = {
    ("solve", "t"): "torch has taken it back: linalg.solve",
    ("solve", "m"): "torch has taken it back: linalg.solve",
    ("embedding_bag", "t"): "what nn.functional.embedding_bag is built on; it gives four results",
    ("max_pool1d_with_indices", "t"): "nn.functional has it",
    ("grouped_mm", "f"): "low-precision products of a GPU",
    ("scaled_mm", "f"): "low-precision products of a GPU",
    ("scaled_grouped_mm", "f"): "low-precision products of a GPU",
}
