"""What distinguishes decoders: sizes and options, read from GGUF keys or from config.json.

One record describes every model that is known here; a model of another kind is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from svod.llm.errors import ModelFileError, UnknownArchitecture


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes and options of a decoder."""

    architecture: str
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    context: int
    epsilon: float = 1e-5
    norm: str = "rms"  # or "layer"
    activation: str = "silu"  # or "gelu", by its tanh form
    is_gated: bool = True
    rotation: str = "half"  # of rotary angles: "half", "pairs" or "none", with learned places
    rotated: int = 0  # elements of a head that turn
    base: float = 10000.0
    local_base: float = 0.0  # of layers with a window, where it differs
    divisor: float = 1.0  # of positions, in layers without a window
    llama3_scaling: tuple[float, float, float, float] | None = None
    attention_scale: float = 0.0
    window: int = 0
    window_layers: tuple[bool, ...] = ()
    score_cap: float = 0.0
    logit_cap: float = 0.0
    embedding_scale: float = 1.0
    experts_used: int = 0  # for each token, of those that a layer has
    norms_experts: bool = True  # whether what the chosen ones give is shared out among them
    plain_period: int = 0  # every so many layers turn no heads

    def turns(self, layer: int) -> bool:
        """Whether heads of a layer turn by rotary angles."""
        is_plain = self.plain_period and (layer + 1) % self.plain_period == 0
        return self.rotation != "none" and not is_plain

    def has_window(self, layer: int) -> bool:
        """Whether a layer sees the last `window` tokens only."""
        return bool(self.window) and (not self.window_layers or self.window_layers[layer])


# Options by architecture, under the names of GGUF files.
_OPTIONS: dict[str, dict[str, Any]] = {
    "llama": {"rotation": "pairs"},
    "qwen2": {},
    "qwen3": {},
    "qwen3moe": {},
    "smollm3": {"plain_period": 4},
    "starcoder2": {"norm": "layer", "activation": "gelu", "is_gated": False},
    "phi3": {},
    "gemma2": {"activation": "gelu"},
    "gemma3": {"activation": "gelu"},
    "gpt2": {"norm": "layer", "activation": "gelu", "is_gated": False, "rotation": "none"},
}
ARCHITECTURES = tuple(_OPTIONS)
_WITH_EXPERTS = ("llama", "qwen3moe")
_SIZE_LIMIT = 1 << 24


class _Keys:
    """Checked reading of keys."""

    def __init__(self, data: Mapping[str, Any], prefix: str = "") -> None:
        self.data, self.prefix = data, prefix

    def size(self, name: str, default: int | None = None) -> int:
        value = self.data.get(self.prefix + name)
        value = default if value is None else value
        if isinstance(value, list) and value and len(set(map(str, value))) == 1:
            value = value[0]  # one per layer, all equal
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _SIZE_LIMIT:
            raise ModelFileError(f"{self.prefix}{name} is {value!r:.60}, which is no size")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.data.get(self.prefix + name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ModelFileError(f"{self.prefix}{name} is {value!r:.60}, which is no number")
        if not math.isfinite(value) or value < 0:
            raise ModelFileError(f"{self.prefix}{name} is {value!r:.60}")
        return float(value)


def config_of_gguf(metadata: Mapping[str, Any]) -> DecoderConfig:
    """The config that the keys of a file describe."""
    name = metadata.get("general.architecture")
    if name not in _OPTIONS:
        raise UnknownArchitecture(
            f"the architecture {name!r:.80} is not known: {', '.join(ARCHITECTURES)} are"
        )
    keys = _Keys(metadata, f"{name}.")
    if metadata.get(f"{name}.expert_count") and name not in _WITH_EXPERTS:
        raise UnknownArchitecture(f"{name} with experts is not known")
    if metadata.get(f"{name}.rope.scaling.type") not in (None, "none", "linear"):
        raise UnknownArchitecture(
            f"the scaling {metadata[f'{name}.rope.scaling.type']!r:.40} of positions is not known"
        )
    width, heads, layers = (
        keys.size(key) for key in ("embedding_length", "attention.head_count", "block_count")
    )
    head = keys.size("attention.key_length", width // heads)
    if keys.size("attention.value_length", head) != head:
        raise UnknownArchitecture(f"{name} with values of another size than keys is not known")
    is_layer_norm = _OPTIONS[name].get("norm") == "layer"
    epsilon = "layer_norm_epsilon" if is_layer_norm else "layer_norm_rms_epsilon"
    kv_heads = keys.size("attention.head_count_kv", heads)
    values = {
        "architecture": name, "width": width, "layers": layers, "heads": heads,
        "kv_heads": kv_heads, "head_size": head, "context": keys.size("context_length", 2048),
        "epsilon": keys.number(f"attention.{epsilon}", 1e-5),
        "rotated": keys.size("rope.dimension_count", head),
        "base": keys.number("rope.freq_base", 10000.0),
        "divisor": keys.number("rope.scaling.factor", 1.0) or 1.0,
        "window": int(keys.number("attention.sliding_window", 0)),
        "score_cap": keys.number("attn_logit_softcapping", 0.0),
        "logit_cap": keys.number("final_logit_softcapping", 0.0),
        "attention_scale": keys.number("attention.scale", 0.0),
        "experts_used": int(keys.number("expert_used_count", 0)),
    }  # fmt: skip
    if not values["attention_scale"] and layers == _WIDE_GEMMA.get(name):
        values["attention_scale"] = (width // heads) ** -0.5
    return _config(values)


# Files of Gemma do not hold the scale of scores: those of this many layers, which are of the 27B
# models, count it from the width, as the programs that make them say; all others from the head.
_WIDE_GEMMA = {"gemma2": 46, "gemma3": 62}


def _config(values: dict[str, Any]) -> DecoderConfig:
    """The options of the architecture, and what follows from sizes."""
    name = values["architecture"]
    values = {**_OPTIONS[name], **values}
    if name.startswith("gemma"):
        values["embedding_scale"] = math.sqrt(values["width"])
        period = 2 if name == "gemma2" else 6
        values.setdefault(
            "window_layers", tuple(n % period < period - 1 for n in range(values["layers"]))
        )
    if name == "gemma3":
        values.setdefault("local_base", 10000.0)
    config = DecoderConfig(**values)
    if config.heads % config.kv_heads or config.rotated > config.head_size or config.rotated % 2:
        raise ModelFileError(
            f"{config.heads} heads, {config.kv_heads} of them with keys, of {config.head_size} "
            f"elements of which {config.rotated} turn, do not fit together"
        )
    return config


# Names of config.json
_FOLDER_NAMES = {
    "llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "phi3": "phi3",
    "gemma2": "gemma2", "gemma3_text": "gemma3", "gpt2": "gpt2", "mixtral": "llama",
    "qwen3_moe": "qwen3moe", "smollm3": "smollm3", "starcoder2": "starcoder2",
}  # fmt: skip
_ACTIVATIONS = {
    "silu": "silu", "gelu_pytorch_tanh": "gelu", "gelu_new": "gelu", "gelu_fast": "gelu",
}  # fmt: skip


def config_of_folder(data: Mapping[str, Any]) -> DecoderConfig:
    """The config that a config.json describes; its weights turn in halves."""
    name = _FOLDER_NAMES.get(data.get("model_type", ""))
    if name is None:
        raise UnknownArchitecture(f"the model type {data.get('model_type')!r:.80} is not known")
    keys = _Keys(data)
    if name == "gpt2":
        heads, width = keys.size("n_head"), keys.size("n_embd")
        return _config(
            {
                "architecture": name, "width": width, "layers": keys.size("n_layer"),
                "heads": heads, "kv_heads": heads, "head_size": width // heads,
                "context": keys.size("n_positions"),
                "epsilon": keys.number("layer_norm_epsilon", 1e-5),
                "activation": _activation(data.get("activation_function", "gelu_new")),
            }
        )  # fmt: skip
    heads, width = keys.size("num_attention_heads"), keys.size("hidden_size")
    head, layers = keys.size("head_dim", width // heads), keys.size("num_hidden_layers")
    values: dict[str, Any] = {
        "architecture": name, "width": width, "layers": layers, "heads": heads,
        "kv_heads": keys.size("num_key_value_heads", heads), "head_size": head,
        "context": keys.size("max_position_embeddings", 2048), "rotation": "half",
        "epsilon": keys.number("rms_norm_eps", keys.number("norm_epsilon", 1e-6)),
        "activation": _activation(data.get("hidden_activation") or data.get("hidden_act")),
        "score_cap": keys.number("attn_logit_softcapping", 0.0),
        "logit_cap": keys.number("final_logit_softcapping", 0.0),
    }  # fmt: skip
    if "num_experts_per_tok" in data:
        values["experts_used"] = keys.size("num_experts_per_tok")
        values["norms_experts"] = bool(data.get("norm_topk_prob", name == "llama"))
    if name == "smollm3":
        values["plain_period"] = _plain_period(data, layers)
    if scale := keys.number("query_pre_attn_scalar", 0.0):
        values["attention_scale"] = scale**-0.5
    kinds = data.get("layer_types") or []
    if len(kinds) == layers:
        values["window_layers"] = tuple(kind == "sliding_attention" for kind in kinds)
    if data.get("use_sliding_window", True) and any(values.get("window_layers", (True,))):
        values["window"] = int(keys.number("sliding_window", 0))
    values.update(_rotation(data, head))
    return _config(values)


def _plain_period(data: Mapping[str, Any], layers: int) -> int:
    """How often a layer turns no heads; a list says it for each layer, with 0 for such."""
    period = int(_Keys(data).number("no_rope_layer_interval", 4))
    found = data.get("no_rope_layers")
    if found and list(found) != [int((n + 1) % period != 0) for n in range(layers)]:
        raise UnknownArchitecture(f"layers without rotation at {found!r:.60} are not known")
    return period


def _activation(name: Any) -> str:
    if name not in _ACTIVATIONS:
        raise UnknownArchitecture(f"the activation {name!r:.40} is not known")
    return _ACTIVATIONS[name]


def _rotation(data: Mapping[str, Any], head: int) -> dict[str, Any]:
    """Rotary angles, in the older and the newer form of config.json."""
    found = data.get("rope_parameters") or data.get("rope_scaling") or {}
    local = found.get("sliding_attention") if isinstance(found, dict) else None
    found = found.get("full_attention", found) if isinstance(found, dict) else {}
    base = _Keys(found).number("rope_theta", _Keys(data).number("rope_theta", 10000.0))
    share = _Keys(found).number(
        "partial_rotary_factor", _Keys(data).number("partial_rotary_factor", 1.0)
    )
    values: dict[str, Any] = {"base": base, "rotated": int(head * share)}
    if local is not None:
        values["local_base"] = _Keys(local).number("rope_theta", 10000.0)
    elif data.get("rope_local_base_freq") is not None:
        values["local_base"] = _Keys(data).number("rope_local_base_freq", 10000.0)
    kind = found.get("rope_type", found.get("type", "default"))
    if kind == "linear":
        values["divisor"] = _Keys(found).number("factor", 1.0)
    elif kind == "llama3":
        names = (
            "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
        )  # fmt: skip
        values["llama3_scaling"] = tuple(_Keys(found).number(n, 1.0) for n in names)
    elif kind != "default":
        raise UnknownArchitecture(f"the scaling {kind!r:.40} of positions is not known")
    return values
