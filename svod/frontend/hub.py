"""Model folders of Hugging Face: ``svod.hub.load(folder)``.

In: a local folder with ``config.json``, safetensors files (one, or shards with an index) and maybe
``tokenizer.json``. Out: a model that runs on Svod. transformers builds the module from its config
without weights; these are torch tensors over the mapped files, so they are in memory once. Nothing
is downloaded, and no code in a folder is run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from svod.base.errors import SvodError, UnsupportedError
from svod.nn.state import StateFileError, read_header

JSON_LIMIT = 1 << 26  # bytes of a config or an index


class HubError(SvodError, ValueError):
    """A folder that is no model, or one that Svod cannot take."""


def load(
    folder: str | os.PathLike[str],
    *,
    dtype: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> HubModel:
    """A model from a local folder.

    ``dtype`` ("bfloat16") casts the weights, which copies them; ``options`` are those of
    ``torch.compile(backend="svod")``, with ``freeze`` unless it is set.
    """
    path = Path(folder)
    if not path.is_dir():
        raise HubError(f"{path} is no folder: models are read from disk, nothing is downloaded")
    config = read_json(path / "config.json")
    module = _module(path, config, dtype)
    return HubModel(path, module, {"freeze": True, **(options or {})})


class HubModel:
    """A model of transformers that runs as Svod plans."""

    def __init__(self, folder: Path, module: Any, options: Mapping[str, Any]) -> None:
        self.folder, self.module, self.options = folder, module, dict(options)

    @property
    def config(self) -> Any:
        return self.module.config

    def __call__(self, *args: Any, **named: Any) -> Any:
        """What the module returns for tensors of torch, or arrays and lists in their place."""
        torch = import_module("torch")
        with torch.no_grad():
            return self._compiled(*map(_tensor, args), **{k: _tensor(v) for k, v in named.items()})

    @cached_property
    def _compiled(self) -> Any:
        return import_module("torch").compile(self.module, backend=_backend(), options=self.options)

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of the folder, by the package ``tokenizers``."""
        path = self.folder / "tokenizer.json"
        if not path.is_file():
            raise HubError(f"{self.folder} has no tokenizer.json")
        try:
            tokenizers = import_module("tokenizers")
        except ImportError:
            raise HubError("a tokenizer needs the package: pip install tokenizers") from None
        return tokenizers.Tokenizer.from_file(str(path))

    def program(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        dynamic_shapes: Any = None,
        limits: Mapping[str, int] | None = None,
    ) -> Any:
        """The module as a Svod model (`svod.torch.from_module`), without caches between calls.

        ``inputs`` are examples by the names of the module's arguments; without them the module's
        own are taken.
        """
        from svod.frontend.torch import from_module

        given = {k: _tensor(v) for k, v in (inputs or self.module.dummy_inputs).items()}
        with _without_cache(self.module):
            return from_module(self.module, (), given, dynamic_shapes=dynamic_shapes, limits=limits)

    def plan(self, inputs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """One plan from the inputs to the outputs, with the weights packed; see `program`."""
        return self.program(inputs, **options).plan()

    def save(
        self,
        path: str | os.PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Write that plan to a file that ``svod.load_plan`` runs without torch."""
        self.program(inputs, **options).save(path)


# -- reading a folder ----------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """An object from a file of the folder."""
    if not path.is_file():
        raise HubError(f"{path.parent} has no {path.name}: is it a model folder?")
    if path.stat().st_size > JSON_LIMIT:
        raise HubError(f"{path} has {path.stat().st_size} bytes")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise HubError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise HubError(f"{path} is not an object")
    return found


def read_weights(folder: Path) -> dict[str, Any]:
    """The weights of a folder as torch tensors over mapped files; writes stay in memory."""
    index, whole = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if whole.is_file():
        return _tensors_of(whole)
    if not index.is_file():
        hint = " (pytorch_model.bin is not read here: svod.load reads its tensors)"
        has_pickle = any(folder.glob("pytorch_model*.bin"))
        raise HubError(f"{folder} has no model.safetensors{hint if has_pickle else ''}")
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise HubError(f"{index} has no weight_map")
    shards = {name: _tensors_of(_shard(folder, name)) for name in dict.fromkeys(places.values())}
    missing = [key for key, name in places.items() if key not in shards[name]]
    if missing:
        raise HubError(f"{index} says {places[missing[0]]} holds {missing[0]}, but it does not")
    return {key: shards[name][key] for key, name in places.items()}


def _shard(folder: Path, name: Any) -> Path:
    """A file of the folder itself: an index may not lead elsewhere."""
    if not isinstance(name, str) or name in ("", ".", "..") or set(name) & set("/\\:\0"):
        raise HubError(f"{folder}: the index names the file {name!r:.80}")
    if not (folder / name).is_file():
        raise HubError(f"{folder}: the shard {name} is missing")
    return folder / name


def _tensors_of(path: Path) -> dict[str, Any]:
    torch = import_module("torch")
    from svod.frontend.torch.dtypes import to_torch

    if path.stat().st_size < 8:
        raise StateFileError(f"{path} is cut off")
    raw = np.memmap(path, np.uint8, "c")  # private: torch may write, the file stays
    entries, _, base = read_header(raw, str(path))
    found = {}
    for name, entry in entries.items():
        line = raw[base + entry.start : base + entry.stop]
        if (base + entry.start) % entry.dtype.itemsize:
            line = line.copy()
        if not line.size:
            found[name] = torch.empty(entry.shape, dtype=to_torch(entry.dtype))
            continue
        found[name] = torch.from_numpy(line).view(to_torch(entry.dtype)).view(entry.shape)
    return found


def _module(folder: Path, config: dict[str, Any], dtype: str | None) -> Any:
    """The module of transformers that the config names, with the weights of the folder."""
    try:
        import transformers
    except ImportError:
        raise HubError("model folders need transformers: pip install transformers") from None
    torch = import_module("torch")
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise HubError(f"{folder}: the config names no architecture")
    if "quantization_config" in config:
        raise UnsupportedError(f"{folder} holds quantised weights", "model")
    kind = getattr(transformers, names[0], None) if names[0].isidentifier() else None
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        code = ": its code is in the folder, which is not run" if config.get("auto_map") else ""
        raise HubError(f"{folder}: transformers has no model {names[0]!r:.80}{code}")
    state = read_weights(folder)
    made = kind.config_class.from_pretrained(str(folder), local_files_only=True)
    kept = getattr(torch, dtype, None) if dtype else _common_dtype(state)
    if not isinstance(kept, torch.dtype):
        raise HubError(f"{dtype!r} is no dtype of torch")
    module, notes = kind.from_pretrained(
        None, config=made, state_dict=dict(state), dtype=kept, output_loading_info=True
    )
    _check_keys(folder, notes)
    return module.eval()


def _check_keys(folder: Path, notes: Mapping[str, Any]) -> None:
    missing, odd = sorted(notes["missing_keys"]), sorted(map(str, notes["mismatched_keys"]))
    if missing or odd:
        raise HubError(
            f"{folder}: the weights do not fit the config: missing {missing[:8]}, of other shapes "
            f"{odd[:8]}"
        )


def _common_dtype(state: Mapping[str, Any]) -> Any:
    """The dtype of most weights, so that these are not converted."""
    sizes: dict[Any, int] = {}
    for value in state.values():
        if value.is_floating_point():
            sizes[value.dtype] = sizes.get(value.dtype, 0) + value.numel()
    return max(sizes, key=lambda kind: sizes[kind]) if sizes else import_module("torch").float32


def _tensor(value: Any) -> Any:
    torch = import_module("torch")
    if isinstance(value, np.ndarray) or (
        isinstance(value, list) and value and isinstance(value[0], (list, int, float))
    ):
        return torch.as_tensor(value)
    return value


@contextmanager
def _without_cache(module: Any) -> Iterator[None]:
    """The configs of a module and of its parts say that keys and values are not kept."""
    configs = {id(c): c for m in module.modules() if (c := getattr(m, "config", None)) is not None}
    had = [(c, c.use_cache) for c in configs.values() if hasattr(c, "use_cache")]
    try:
        for config, _ in had:
            config.use_cache = False
        yield
    finally:
        for config, value in had:
            config.use_cache = value


def _backend() -> Any:
    from svod.frontend.torch import backend

    return backend


__all__ = ["HubError", "HubModel", "load"]
