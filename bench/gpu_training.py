"""Training steps of whole models on a GPU, beside torch: ``python bench/gpu.py training``.

Each program is written once against names that both libraries share, with the same first weights
and data. The losses of the first steps are compared; then a step is timed, forward, backward and
optimizer: ours as `svod.jit` calls it, torch's eagerly and compiled, with its fused optimizer.
"""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpu_harness import Bench, Result, gpu_ms, torch_ms

STEPS = 10  # whose losses are compared
REPEAT = 20


@dataclass(frozen=True)
class Program:
    """A model with its loss, and the data of one step."""

    name: str
    build: Callable[[Any], Any]  # library -> module whose call gives the loss
    data: Callable[[np.random.Generator], tuple[np.ndarray[Any, Any], ...]]
    dtype: str
    tolerance: float  # of the losses, relative
    bar: float


def gpt(layers: int, width: int, heads: int, words: int, length: int) -> Callable[[Any], Any]:
    """GPT-2: learned positions, pre-norm blocks, a head tied to the embedding, cross-entropy."""

    def build(lib: Any) -> Any:
        nn, F = lib.nn, importlib.import_module(f"{lib.__name__}.nn.functional")

        class Block(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
                self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
                self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

            def forward(self, x: Any) -> Any:
                b, t, c = x.shape
                parts = self.attention(self.norm1(x)).split(width, dim=2)
                q, k, v = (p.view(b, t, heads, c // heads).transpose(1, 2) for p in parts)
                mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
                return x + self.down(F.gelu(self.up(self.norm2(x))))

        class GPT(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.words, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
                self.blocks = nn.ModuleList([Block() for _ in range(layers)])
                self.norm = nn.LayerNorm(width)
                self.head = nn.Linear(width, words, bias=False)
                self.head.weight = self.words.weight

            def forward(self, tokens: Any, targets: Any) -> Any:
                at = lib.arange(0, tokens.shape[1], device=tokens.device)
                x = self.words(tokens) + self.positions(at)
                for block in self.blocks:
                    x = block(x)
                logits = self.head(self.norm(x)).view(-1, words)
                return F.cross_entropy(logits.float(), targets.view(-1))

        return GPT()

    return build


def resnet(depths: tuple[int, ...], is_wide: bool, classes: int) -> Callable[[Any], Any]:
    """ResNet-18 (basic blocks) or ResNet-50 (bottlenecks) with batch norm in training mode."""

    def build(lib: Any) -> Any:
        nn, F = lib.nn, importlib.import_module(f"{lib.__name__}.nn.functional")
        growth = 4 if is_wide else 1

        def unit(inputs: int, outputs: int, window: int, stride: int = 1) -> Any:
            conv = nn.Conv2d(inputs, outputs, window, stride, window // 2, bias=False)
            return nn.Sequential(conv, nn.BatchNorm2d(outputs))

        class Block(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self, inputs: int, width: int, stride: int) -> None:
                super().__init__()
                outputs = width * growth
                if is_wide:
                    shape = [
                        (inputs, width, 1, 1),
                        (width, width, 3, stride),
                        (width, outputs, 1, 1),
                    ]
                else:
                    shape = [(inputs, width, 3, stride), (width, width, 3, 1)]
                self.units = nn.ModuleList([unit(*each) for each in shape])
                is_same = stride == 1 and inputs == outputs
                self.short = None if is_same else unit(inputs, outputs, 1, stride)

            def forward(self, x: Any) -> Any:
                y = x
                for i, each in enumerate(self.units):
                    y = each(y) if i == len(self.units) - 1 else F.relu(each(y))
                return F.relu(y + (x if self.short is None else self.short(x)))

        class ResNet(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.stem, inputs = unit(3, 64, 7, 2), 64
                blocks = []
                for stage, depth in enumerate(depths):
                    for i in range(depth):
                        width = 64 << stage
                        blocks.append(Block(inputs, width, 2 if stage and not i else 1))
                        inputs = width * growth
                self.blocks = nn.ModuleList(blocks)
                self.head = nn.Linear(inputs, classes)

            def forward(self, images: Any, targets: Any) -> Any:
                x = F.max_pool2d(F.relu(self.stem(images)), 3, 2, 1)
                for block in self.blocks:
                    x = block(x)
                return F.cross_entropy(self.head(x.mean((2, 3))).float(), targets)

        return ResNet()

    return build


def tokens(batch: int, length: int, words: int) -> Callable[[np.random.Generator], Any]:
    return lambda r: tuple(r.integers(0, words, (batch, length)) for _ in range(2))


def images(batch: int, size: int, classes: int) -> Callable[[np.random.Generator], Any]:
    return lambda r: (
        r.standard_normal((batch, 3, size, size), np.float32),
        r.integers(0, classes, batch),
    )


SMALL, LARGE = gpt(4, 512, 8, 8192, 512), gpt(12, 768, 12, 50304, 1024)
RESNET18, RESNET50 = resnet((2, 2, 2, 2), False, 1000), resnet((3, 4, 6, 3), True, 1000)
PROGRAMS = [
    Program("GPT-2 124M bf16 8x1024", LARGE, tokens(8, 1024, 50304), "bfloat16", 2e-2, 1.0),
    Program("GPT 4 layers f32 8x512", SMALL, tokens(8, 512, 8192), "float32", 1e-3, 1.0),
    Program("ResNet-18 f32 64x128²", RESNET18, images(64, 128, 1000), "float32", 1e-3, 0.9),
    Program("ResNet-50 bf16 64x224²", RESNET50, images(64, 224, 1000), "bfloat16", 5e-2, 0.9),
]


def training_cases(b: Bench) -> None:
    """A step of each program, beside torch."""
    for program in PROGRAMS:
        training_case(b, program)


def training_case(b: Bench, program: Program) -> None:
    import svod

    weights = first_weights(program)
    step, arguments = prepare_step(svod, program, weights, "jit")
    began = time.perf_counter()
    losses = [float(step(*arguments))]
    prepared = time.perf_counter() - began
    losses += [float(step(*arguments)) for _ in range(STEPS - 1)]
    ours, spread = gpu_ms(lambda: step(*arguments), REPEAT)
    peer, peer_name, error = None, "", 0.0
    if b.torch is not None:
        for way in ["eager"] + ["compiled"] * b.use_compile:
            theirs, given = prepare_step(b.torch, program, weights, way)
            wanted = [float(theirs(*given)) for _ in range(STEPS)]
            error = max(abs(x - y) / abs(y) for x, y in zip(losses, wanted, strict=True))
            found = torch_ms(lambda theirs=theirs, given=given: theirs(*given), REPEAT)
            if peer is None or found < peer:
                peer, peer_name = found, way
            del theirs, given
            gc.collect()
            b.torch.cuda.empty_cache()
    kernels = [k.entry_point for k in step.plan(*arguments).kernels()]
    b.add(Result(
        program.name, ours, error, peer, peer_name, program.bar, spread=spread,
        note=f"prepare {prepared:.1f} s, {len(kernels)} kernels", kernels=kernels,
        tolerance=program.tolerance,
    ))  # fmt: skip


def first_weights(program: Program) -> dict[str, np.ndarray[Any, Any]]:
    """Weights of the size that the library's own beginnings have, from NumPy."""
    import svod

    random = np.random.default_rng(0)
    made = {}
    for name, tensor in program.build(svod).state_dict().items():
        shape = tuple(tensor.shape)
        if name.endswith("bias"):
            made[name] = np.zeros(shape, np.float32)
        if len(shape) > 1:
            fan = int(np.prod(shape[1:]))
            made[name] = (random.standard_normal(shape, np.float32) / np.sqrt(fan)).astype("f4")
            if name.startswith(("words", "positions", "head")):
                made[name] = random.standard_normal(shape, np.float32) * 0.02
    made.update({"head.weight": made["words.weight"]} if "words.weight" in made else {})
    return made


def prepare_step(
    lib: Any, program: Program, weights: Any, way: str, device: str = "cuda"
) -> tuple[Any, Any]:
    """The step as a function of the data, and the data on the device."""
    is_torch = lib.__name__ == "torch"
    model = program.build(lib)
    own = model.state_dict()
    with lib.no_grad():
        for name, array in weights.items():
            own[name].copy_(lib.from_numpy(array))
    model = model.to(device).to(getattr(lib, program.dtype))
    options = {"fused": True} if is_torch else {}
    optimizer = lib.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, **options)
    arrays = program.data(np.random.default_rng(1))
    given = [lib.from_numpy(a).to(device) for a in arrays]
    if arrays[0].dtype.kind == "f":
        given[0] = given[0].to(getattr(lib, program.dtype))
    if not is_torch:
        for each in given:
            each.realize()
    forward = lib.compile(model) if way == "compiled" else model

    def step(*data: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = forward(*data)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return (lib.jit(step, state=(model, optimizer)) if way == "jit" else step), given
