"""Models of torchvision and transformers with random weights, exported to ONNX.

`small=True` makes each with few layers and narrow ones. Sizes that vary are named per input.
`python -m tests.frontend.onnx.zoo resnet50 bert` exports the full models, runs each at several
batches and lengths beside torch, and prints a line for each.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """A module with arguments, and which axes of these vary under which name."""

    module: Any
    arguments: tuple[Any, ...]
    axes: tuple[dict[int, str], ...]
    resized: Callable[[int, int], tuple[Any, ...]]  # arguments at another batch and length


_LIBRARIES: list[Any] = []  # definitions go when their library does


def _torch() -> Any:
    """torch, with the operators that torchvision defines in C where those are missing.

    What is compiled is loaded first: a name that is defined twice ends the process.
    """
    import torch

    if not _LIBRARIES:
        found = find_spec("torchvision")
        for place in (found.submodule_search_locations or ()) if found is not None else ():
            with contextlib.suppress(OSError):  # it was made for another torch
                torch.ops.load_library(str(Path(place) / "_C.so"))
        _LIBRARIES.append(torch.library.Library("torchvision", "FRAGMENT"))
        boxes = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        for name in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, name):
                _LIBRARIES[0].define(name + boxes)
                if name == "nms":
                    _LIBRARIES[0].impl(name, _suppressed, "CPU")
    return torch


def _suppressed(boxes: Any, scores: Any, overlap: float) -> Any:
    """The places of boxes that no better one overlaps too much, the best first."""
    import torch

    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    kept: list[int] = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        low = torch.maximum(boxes[i, :2], boxes[kept, :2])
        high = torch.minimum(boxes[i, 2:], boxes[kept, 2:])
        common = (high - low).clamp(min=0).prod(1)
        if not (common > overlap * (areas[i] + areas[kept] - common)).any():
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


def has_all() -> bool:
    """Whether everything that exports need is installed."""
    names = ("torch", "torchvision", "transformers", "onnxscript")
    return all(find_spec(name) is not None for name in names)


def _vision(name: str, small: bool) -> Case:
    torch = _torch()
    import torchvision

    models = torchvision.models
    width = 64 if small else 224
    options: dict[str, Any] = {"weights": None}
    if small and name == "resnet50":
        block = models.resnet.Bottleneck
        module = models.ResNet(block, [1, 1, 1, 1], num_classes=10)
    elif small and name == "swin_t":
        module = models.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10)
    elif small and name == "vit_b_16":
        module = models.VisionTransformer(width, 16, 2, 4, 32, 64, num_classes=10)
    elif small and name == "convnext_tiny":
        block_of = models.convnext.CNBlockConfig
        module = models.ConvNeXt([block_of(16, 32, 2), block_of(32, None, 2)], num_classes=10)
    elif name == "deeplabv3":
        make = models.segmentation.deeplabv3_mobilenet_v3_large
        make = make if small else models.segmentation.deeplabv3_resnet50
        inner = make(weights=None, weights_backbone=None)
        module, width = _output_of(torch, inner, "out"), 64 if small else 128
    else:
        module = getattr(models, name)(**options)
    if hasattr(module, "heads"):  # starts with zeros, which would hide everything before
        torch.nn.init.normal_(module.heads.head.weight, std=0.1)

    def images(batch: int, _: int) -> tuple[Any, ...]:
        return (torch.randn(batch, 3, width, width),)

    return Case(module, images(2, 0), ({0: "batch"},), images)


def _output_of(torch: Any, module: Any, key: str) -> Any:
    class Output(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> Any:
            return self.module(x)[key]

    return Output()


def _text(kind: str, key: str, small: bool, **options: Any) -> Case:
    torch = _torch()
    import transformers

    config = getattr(transformers, kind.replace("LMHead", "").replace("Model", "Config"))
    config = config(attn_implementation="eager" if kind.startswith("GPT") else "sdpa", **options)
    module = _output_of(torch, getattr(transformers, kind)(config), key)
    most = 500 if small else 30000

    def tokens(batch: int, length: int) -> tuple[Any, ...]:
        return (torch.randint(1, most, (batch, length)),)

    return Case(module, tokens(2, 16), ({0: "batch", 1: "length"},), tokens)


_SMALL_BERT = {
    "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64,
    "vocab_size": 500,
}  # fmt: skip
_SMALL_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
_WHISPER = {
    "d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6,
    "decoder_attention_heads": 6, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536,
}  # fmt: skip
_SMALL_WHISPER = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "max_source_positions": 50, "vocab_size": 500, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip


def _bert(small: bool) -> Case:
    return _text("BertModel", "last_hidden_state", small, **(_SMALL_BERT if small else {}))


def _distilbert(small: bool) -> Case:
    options = {"n_layers": 2, "dim": 32, "n_heads": 4, "hidden_dim": 64, "vocab_size": 500}
    return _text("DistilBertModel", "last_hidden_state", small, **(options if small else {}))


def _gpt2(small: bool) -> Case:
    options = {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 500}
    return _text("GPT2LMHeadModel", "logits", small, use_cache=False, **(options if small else {}))


def _t5(small: bool) -> Case:
    torch = _torch()
    import transformers

    options = {"vocab_size": 500, **_SMALL_T5} if small else {}
    config = transformers.T5Config(decoder_start_token_id=0, use_cache=False, **options)

    class Both(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.module = transformers.T5ForConditionalGeneration(config)

        def forward(self, source: Any, target: Any) -> Any:
            return self.module(input_ids=source, decoder_input_ids=target).logits

    def tokens(batch: int, length: int) -> tuple[Any, ...]:
        sizes = ((batch, length), (batch, length // 2 + 1))
        return tuple([torch.randint(1, 500, size) for size in sizes])

    axes = ({0: "batch", 1: "source"}, {0: "batch", 1: "target"})
    return Case(Both(), tokens(2, 16), axes, tokens)


def _whisper(part: str, small: bool) -> Case:
    torch = _torch()
    import transformers

    config = transformers.WhisperConfig(use_cache=False, **(_SMALL_WHISPER if small else _WHISPER))
    whole = transformers.WhisperModel(config)
    frames = config.max_source_positions
    if part == "encoder":
        module = _output_of(torch, whole.encoder, "last_hidden_state")

        def sound(batch: int, _: int) -> tuple[Any, ...]:
            return (torch.randn(batch, config.num_mel_bins, 2 * frames),)

        return Case(module, sound(2, 0), ({0: "batch"},), sound)

    class Decoder(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.module = whole.decoder

        def forward(self, tokens: Any, states: Any) -> Any:
            found = self.module(input_ids=tokens, encoder_hidden_states=states, use_cache=False)
            return found.last_hidden_state

    def arguments(batch: int, length: int) -> tuple[Any, ...]:
        states = torch.randn(batch, frames, config.d_model)
        return torch.randint(1, 500, (batch, length)), states

    axes = ({0: "batch", 1: "length"}, {0: "batch"})
    return Case(Decoder(), arguments(2, 16), axes, arguments)


def _clip(part: str, small: bool) -> Case:
    torch = _torch()
    import transformers

    narrow = {"hidden_size": 32, "intermediate_size": 64, "projection_dim": 16}
    narrow |= {"num_hidden_layers": 2, "num_attention_heads": 4}
    if part == "text":
        options = {**narrow, "vocab_size": 500, "eos_token_id": 499} if small else {}
        config = transformers.CLIPTextConfig(**options)
        module = transformers.CLIPTextModelWithProjection(config)
        most = config.vocab_size

        def tokens(batch: int, _: int) -> tuple[Any, ...]:
            return (torch.randint(1, most, (batch, config.max_position_embeddings)),)

        return Case(_output_of(torch, module, "text_embeds"), tokens(2, 0), ({0: "batch"},), tokens)
    options = {**narrow, "image_size": 64, "patch_size": 16} if small else {}
    config = transformers.CLIPVisionConfig(**options)
    module = transformers.CLIPVisionModelWithProjection(config)

    def images(batch: int, _: int) -> tuple[Any, ...]:
        return (torch.randn(batch, 3, config.image_size, config.image_size),)

    return Case(_output_of(torch, module, "image_embeds"), images(2, 0), ({0: "batch"},), images)


def _detector(small: bool) -> Case:
    """Boxes and classes of each place of an image; those that are likely, without overlaps."""
    torch = _torch()
    import torchvision

    nn, classes, width = torch.nn, 5 if small else 20, 64 if small else 320
    if small:
        body, channels = nn.Sequential(nn.Conv2d(3, 16, 3, 4, 1), nn.ReLU()), 16
    else:
        body, channels = torchvision.models.mobilenet_v3_large(weights=None).features, 960

    class Detector(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = body
            self.head = nn.Conv2d(channels, 4 + classes, 3, padding=1)
            nn.init.normal_(self.head.weight, std=0.1 if small else 2.0)

        def forward(self, x: Any) -> Any:
            found = self.head(self.body(x))[0].flatten(1)
            scores = found[4:].T.sigmoid()
            place, label = (scores > 0.6).nonzero().unbind(1)
            sizes = found[:4].T.sigmoid()[place] * 8
            middle = torch.stack([place % 16, place // 16], 1) * 4.0
            boxes = torch.cat([middle - sizes[:, :2], middle + sizes[:, 2:]], 1)
            scores = scores[place, label]
            apart = boxes + (label * 1000.0).unsqueeze(1)  # classes do not overlap each other
            kept = torch.ops.torchvision.nms(apart, scores, 0.5)
            named = label[kept].unsqueeze(1).to(boxes.dtype)
            return torch.cat([boxes[kept], scores[kept].unsqueeze(1), named], 1)

    def images(batch: int, length: int) -> tuple[Any, ...]:
        return (torch.randn(1, 3, width, width) * (0.2 + length / 16),)

    return Case(Detector(), images(1, 16), ({},), images)


MODELS: dict[str, Callable[[bool], Case]] = {
    "resnet50": lambda small: _vision("resnet50", small),
    "mobilenetv3": lambda small: _vision(f"mobilenet_v3_{'small' if small else 'large'}", small),
    "efficientnet_b0": lambda small: _vision("efficientnet_b0", small),
    "convnext_tiny": lambda small: _vision("convnext_tiny", small),
    "swin_tiny": lambda small: _vision("swin_t", small),
    "vit_b16": lambda small: _vision("vit_b_16", small),
    "deeplabv3": lambda small: _vision("deeplabv3", small),
    "bert": _bert,
    "distilbert": _distilbert,
    "gpt2": _gpt2,
    "t5_small": _t5,
    "whisper_encoder": lambda small: _whisper("encoder", small),
    "whisper_decoder": lambda small: _whisper("decoder", small),
    "clip_text": lambda small: _clip("text", small),
    "clip_image": lambda small: _clip("image", small),
    "detector": _detector,
}


def export(case: Case, path: Path) -> None:
    """Write a case as an ONNX file with its varying axes."""
    torch = _torch()
    warnings.filterwarnings("ignore")
    case.module.eval()
    dynamic = tuple([dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for axes in case.axes])
    names = [f"x{i}" for i in range(len(case.arguments))]
    with torch.no_grad():
        torch.onnx.export(
            case.module, case.arguments, str(path), input_names=names, output_names=["y"],
            dynamic_shapes=dynamic, dynamo=True, verbose=False, external_data=False,
        )  # fmt: skip


def case_of(name: str, small: bool) -> Case:
    torch = _torch()
    torch.manual_seed(0)
    return MODELS[name](small)


def is_as_planned(name: str, notes: list[str]) -> bool:
    """Whether a model has one plan, a detector three: another call then compiles nothing."""
    parts = [n for n in notes if n.startswith("a split plan")]
    others = [n for n in notes if n not in parts and "taken to be" not in n]  # equal batches
    return not others and len(parts) == (2 if name == "detector" else 0)


def difference(model: Any, case: Case, arguments: tuple[Any, ...]) -> float:
    """How far a model is from torch, relative to the largest number of the result."""
    torch = _torch()
    with torch.no_grad():
        wanted = case.module(*arguments).numpy()
    found = model(*[a.numpy() for a in arguments])
    if found.shape != wanted.shape:
        raise AssertionError(f"{found.shape} instead of {wanted.shape}")
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def main(names: list[str]) -> int:
    """Full models beside torch, one line each; 1 where one is wrong, or compiles again."""
    import svod
    from svod.device.cpu.compiler import counters

    folder = Path("build/zoo")
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in names or list(MODELS):
        case = case_of(name, small=False)
        path = folder / f"{name}.onnx"
        if not path.exists():
            export(case, path)
        start = time.perf_counter()
        model = svod.onnx.load(path)
        worst = [difference(model, case, case.resized(1, 16))]
        first = time.perf_counter() - start
        before = dict(counters)
        worst += [difference(model, case, case.resized(*s)) for s in ((2, 7), (3, 100))]
        is_right = max(worst) < 1e-4 and counters == before and is_as_planned(name, model.notes)
        failed |= not is_right
        print(
            f"{'right' if is_right else 'WRONG'} {name:16} {max(worst):.1e} first result "
            f"{first:.1f} s notes {model.notes or 'none'}", flush=True,
        )  # fmt: skip
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
