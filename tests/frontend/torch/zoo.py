"""Small models with random weights, by name: what the tests of whole models run.

Each entry makes a module and its keyword arguments. Configurations are tiny: what counts is that
every operator and every form of a real model is there, not its size.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Model = tuple[nn.Module, dict[str, Any]]
Maker = Callable[[], Model]

MODELS: dict[str, Maker] = {}


def _model(name: str) -> Callable[[Maker], Maker]:
    def decorate(make: Maker) -> Maker:
        assert name not in MODELS, name
        MODELS[name] = make
        return make

    return decorate


def made(name: str) -> Model:
    """A model; parameters that are all alike at first (zeros, ones) are spread: they show then."""
    torch.manual_seed(0)
    model, given = MODELS[name]()
    for p in model.parameters():
        if p.numel() > 1 and bool((p == p.flatten()[0]).all()):
            p.data += 0.1 * torch.randn(p.shape)
    return model, given


def first(result: Any) -> torch.Tensor:
    """The main result of a model."""
    if isinstance(result, torch.Tensor):
        return result
    return result.to_tuple()[0] if hasattr(result, "to_tuple") else result[0]


def transformers() -> Any:
    if find_spec("torchvision") is not None:  # transformers imports it where it is there
        from tests.frontend.torch.vision import torchvision

        torchvision()
    import transformers as found

    return found


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(0, 100, shape or (2, 12))


_LAYERS = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip
_DECODER = dict(
    **_LAYERS, num_key_value_heads=2, vocab_size=100, pad_token_id=0, bos_token_id=1,
    eos_token_id=2, max_position_embeddings=64,
)  # fmt: skip
_ENCODER = dict(**_LAYERS, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def _decoder(name: str, kind: str, **others: Any) -> None:
    @_model(name)
    def make() -> Model:
        t = transformers()
        config = getattr(t, f"{kind}Config")(**_DECODER, **others)
        return getattr(t, f"{kind}ForCausalLM")(config), {"input_ids": ids(), "use_cache": False}


_decoder("llama", "Llama")
_decoder("qwen2", "Qwen2", sliding_window=6, use_sliding_window=True, max_window_layers=1)
_decoder("qwen3", "Qwen3", head_dim=8)
_decoder("mistral", "Mistral", sliding_window=6)
_decoder("mixtral", "Mixtral", num_local_experts=4, num_experts_per_tok=2)
_decoder("gemma2", "Gemma2", head_dim=8, sliding_window=6)
_decoder("phi3", "Phi3")


@_model("gpt2")
def gpt2() -> Model:
    t = transformers()
    config = t.GPT2Config(
        n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=64,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
    )  # fmt: skip
    return t.GPT2LMHeadModel(config), {"input_ids": ids(), "use_cache": False}


@_model("bert")
def bert() -> Model:
    t = transformers()
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 8:] = 0
    config = t.BertConfig(**_ENCODER, vocab_size=100)
    return t.BertModel(config), {"input_ids": ids(), "attention_mask": mask}


@_model("roberta")
def roberta() -> Model:
    t = transformers()
    config = t.RobertaConfig(**_ENCODER, vocab_size=100, pad_token_id=1, max_position_embeddings=32)
    return t.RobertaModel(config), {"input_ids": ids()}


@_model("t5")
def t5() -> Model:
    t = transformers()
    config = t.T5Config(
        d_model=32, num_layers=2, num_heads=2, d_kv=16, d_ff=64, vocab_size=100, dropout_rate=0
    )
    given = {"input_ids": ids(), "decoder_input_ids": ids(2, 7), "use_cache": False}
    return t.T5Model(config), given


@_model("whisper")
def whisper() -> Model:
    t = transformers()
    config = t.WhisperConfig(
        vocab_size=100, num_mel_bins=16, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64,
        decoder_ffn_dim=64, max_source_positions=20, max_target_positions=16, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    given = {"input_features": torch.randn(2, 16, 40), "decoder_input_ids": ids(2, 7)}
    return t.WhisperModel(config), {**given, "use_cache": False}


@_model("vit")
def vit() -> Model:
    t = transformers()
    config = t.ViTConfig(**_ENCODER, image_size=32, patch_size=8)
    return t.ViTModel(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


@_model("clip")
def clip() -> Model:
    t = transformers()
    text = dict(**_LAYERS, vocab_size=100, max_position_embeddings=16, eos_token_id=99)
    config = t.CLIPConfig(
        text_config=text, vision_config=dict(**_LAYERS, image_size=32, patch_size=8),
        projection_dim=16,
    )  # fmt: skip
    return t.CLIPModel(config), {
        "input_ids": ids(), "pixel_values": torch.randn(2, 3, 32, 32)
    }  # fmt: skip


@_model("segformer")
def segformer() -> Model:
    t = transformers()
    config = t.SegformerConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=16, num_labels=5,
    )  # fmt: skip
    return t.SegformerForSemanticSegmentation(config), {"pixel_values": torch.randn(1, 3, 64, 64)}


@_model("mamba")
def mamba() -> Model:
    t = transformers()
    config = t.MambaConfig(
        vocab_size=100, hidden_size=32, state_size=8, num_hidden_layers=2, expand=2, conv_kernel=4
    )
    return t.MambaForCausalLM(config), {"input_ids": ids(), "use_cache": False}


# -- torchvision -----------------------------------------------------------------------------------


def _pictures(size: int = 64, count: int = 2) -> dict[str, Any]:
    return {"x": torch.randn(count, 3, size, size)}


def _vision(name: str, size: int = 64, **others: Any) -> None:
    @_model(f"torchvision_{name}")
    def make() -> Model:
        from tests.frontend.torch.vision import torchvision

        return getattr(torchvision().models, name)(weights=None, **others), _pictures(size)


_vision("resnet18")
_vision("resnet50")
_vision("mobilenet_v3_small")
_vision("efficientnet_b0")
_vision("convnext_tiny")
_vision("swin_t")


@_model("torchvision_vit")
def torchvision_vit() -> Model:
    from tests.frontend.torch.vision import torchvision

    kind = torchvision().models.VisionTransformer
    return kind(32, 8, 2, 2, 32, 64, num_classes=10), _pictures(32)


@_model("torchvision_deeplabv3")
def deeplabv3() -> Model:
    from tests.frontend.torch.vision import torchvision

    segmentation = torchvision().models.segmentation
    made = segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None)
    return _Part(made, "out"), _pictures(64)


class _Part(nn.Module):
    """One value of a dict that a module gives."""

    def __init__(self, inner: nn.Module, key: str) -> None:
        super().__init__()
        self.inner, self.key = inner, key

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[self.key]


# -- timm ------------------------------------------------------------------------------------------

TIMM = {
    "resnet10t": {},
    "efficientnet_b0": {},
    "convnext_atto": {},
    "vit_tiny_patch16_224": {"img_size": 32, "patch_size": 8, "depth": 2},
    "swin_tiny_patch4_window7_224": {"img_size": 64, "window_size": 4, "depths": (1, 1, 1, 1)},
    "deit_tiny_distilled_patch16_224": {"img_size": 32, "patch_size": 8, "depth": 2},
    "mixer_s32_224": {"img_size": 64},
    "regnety_002": {},
    "densenet121": {"block_config": (2, 2, 2, 2)},
    "mobilenetv3_small_050": {},
    "repvgg_a0": {},
    "levit_128s": {"img_size": 64},
    "pvt_v2_b0": {},
    "coat_lite_tiny": {"img_size": 64},
    "maxvit_pico_rw_256": {"img_size": 64},
    "ghostnet_050": {},
}


def _timm(name: str, options: dict[str, Any]) -> None:
    @_model(f"timm_{name}")
    def make() -> Model:
        from tests.frontend.torch.vision import torchvision

        torchvision()
        import timm

        made = timm.create_model(name, pretrained=False, num_classes=10, **options)
        return made, _pictures(options.get("img_size", 64))


for _name, _options in TIMM.items():
    _timm(_name, _options)


# -- written here ----------------------------------------------------------------------------------


class Flow(nn.Module):
    """Optical flow by looking up correlations and refining, a few rounds."""

    def __init__(self, width: int = 8, rounds: int = 3, radius: int = 1) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.InstanceNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, 2, 1),
        )  # fmt: skip
        side = 2 * radius + 1
        self.rounds, self.radius = rounds, radius
        self.update = nn.Conv2d(side * side + 2 + width, 3 * width, 3, padding=1)
        self.step = nn.Conv2d(width, 2, 3, padding=1)
        self.mask = nn.Conv2d(width, 9 * 16, 1)

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        a, b = self.features(first), self.features(second)
        n, c, h, w = a.shape
        all_pairs = torch.einsum("nchw,ncij->nhwij", a, b).reshape(n * h * w, 1, h, w) / c**0.5
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        base = torch.stack([xs, ys]).float().expand(n, 2, h, w)
        at, state = base, torch.tanh(a)
        for _ in range(self.rounds):
            found = self._look(all_pairs, at.detach(), n, h, w)
            gates = self.update(torch.cat([found, at - base, state], 1)).chunk(3, 1)
            z = torch.sigmoid(gates[0])
            state = (1 - z) * state + z * torch.tanh(torch.sigmoid(gates[1]) * gates[2])
            at = at + self.step(state)
        return self._enlarged(at - base, state)

    def _look(self, pairs: torch.Tensor, at: torch.Tensor, n: int, h: int, w: int) -> torch.Tensor:
        r = self.radius
        span = torch.arange(-r, r + 1, dtype=torch.float32)
        near = torch.stack(torch.meshgrid(span, span, indexing="ij"), -1).flip(-1)
        places = at.permute(0, 2, 3, 1).reshape(n * h * w, 1, 1, 2) + near
        grid = places / torch.tensor([w - 1, h - 1]) * 2 - 1
        found = F.grid_sample(pairs, grid, align_corners=True)
        return found.reshape(n, h, w, -1).permute(0, 3, 1, 2)

    def _enlarged(self, flow: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        n, _, h, w = flow.shape
        mask = self.mask(state).view(n, 1, 9, 4, 4, h, w).softmax(2)
        parts = F.unfold(4 * flow, 3, padding=1).view(n, 2, 9, 1, 1, h, w)
        return (mask * parts).sum(2).permute(0, 1, 4, 2, 5, 3).reshape(n, 2, 4 * h, 4 * w)


@_model("flow")
def flow() -> Model:
    return Flow(), {"first": torch.randn(1, 3, 32, 32), "second": torch.randn(1, 3, 32, 32)}


class UNet(nn.Module):
    """Down, up, and across: convolutions with pools, transposed convolutions and joins."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down1, self.down2 = _double(3, width), _double(width, 2 * width)
        self.middle = _double(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.join2 = _double(4 * width, 2 * width)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.join1 = _double(3 * width, width)
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        found = self.middle(F.max_pool2d(b, 2))
        found = self.join2(torch.cat([self.up2(found), b], 1))
        found = self.join1(torch.cat([self.up1(found), a], 1))
        return self.last(found)


def _double(first: int, last: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(first, last, 3, padding=1, bias=False), nn.BatchNorm2d(last), nn.ReLU(True),
        nn.Conv2d(last, last, 3, padding=1, bias=False), nn.BatchNorm2d(last), nn.ReLU(True),
    )  # fmt: skip


@_model("unet")
def unet() -> Model:
    return UNet(), {"x": torch.randn(1, 3, 32, 32)}


class Denoiser(nn.Module):
    """A diffusion network: residual blocks that know the time, attention to pixels and to words."""

    def __init__(self, width: int = 16, words: int = 12) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.blocks = nn.ModuleList([_Residual(width) for _ in range(3)])
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.across = nn.MultiheadAttention(width, 2, kdim=words, vdim=words, batch_first=True)
        self.down = nn.Conv2d(width, width, 3, 2, 1)
        self.last = nn.Conv2d(2 * width, 4, 3, padding=1)
        self.norm, self.width = nn.GroupNorm(4, width), width

    def forward(self, x: torch.Tensor, time: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(torch.linspace(0, -9, self.width // 2))
        angles = time[:, None].float() * rates
        t = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        kept = self.blocks[0](self.first(x), t)
        low = self.blocks[1](self.down(kept), t)
        n, c, h, w = low.shape
        rows = self.norm(low).flatten(2).mT
        rows = rows + self.attention(rows, rows, rows, need_weights=False)[0]
        rows = rows + self.across(rows, words, words, need_weights=False)[0]
        low = self.blocks[2](low + rows.mT.reshape(n, c, h, w), t)
        up = F.interpolate(low, scale_factor=2.0, mode="nearest")
        return self.last(torch.cat([up, kept], 1))


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, width), nn.GroupNorm(4, width)
        self.conv1, self.conv2 = [nn.Conv2d(width, width, 3, padding=1) for _ in range(2)]
        self.time = nn.Linear(width, 2 * width)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        scale, shift = self.time(F.silu(t))[:, :, None, None].chunk(2, 1)
        found = self.conv1(F.silu(self.norm1(x)))
        found = self.norm2(found) * (1 + scale) + shift
        return x + self.conv2(F.silu(found))


@_model("denoiser")
def denoiser() -> Model:
    given = {"x": torch.randn(2, 4, 8, 8), "time": torch.tensor([3, 700])}
    return Denoiser(), {**given, "words": torch.randn(2, 5, 12)}


class Recurrent(nn.Module):
    """A classifier over an LSTM in both directions."""

    def __init__(self, kind: type[nn.Module] = nn.LSTM) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 16)
        self.recurrent = kind(16, 16, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(self.embedding(x))[0])


@_model("lstm")
def lstm() -> Model:
    return Recurrent(), {"x": ids()}


@_model("gru")
def gru() -> Model:
    return Recurrent(nn.GRU), {"x": ids()}


@_model("encoder")
def encoder() -> Model:
    layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2), {"src": torch.randn(2, 6, 16)}


@_model("transformer")
def transformer() -> Model:
    made = nn.Transformer(16, 2, 2, 2, 32, 0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    given = {"src": torch.randn(2, 6, 16), "tgt": torch.randn(2, 5, 16)}
    return made, {**given, "tgt_mask": mask, "tgt_is_causal": True}
