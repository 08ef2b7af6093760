"""Models of torch: eager, inductor and Svod in one run, with the time each takes to compile.

`python -m bench.torch_models [names] [--threads 2] [--peers eager,inductor,svod] [--runs 10]`

Models are made from configs with random weights. Contenders run in turn within one process, so that
they see the same machine; a figure is the median in wall time or, with `--cpu`, the mean in process
time, for machines that others use as well (compilers that inductor starts are not in it). Compile
times start without kept files. The last column is the best of torch's times over ours: 1.00 or more
is the bar. `--profile` prints the kernels of Svod's plans.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from statistics import mean, median
from typing import Any

import torch

Work = tuple[torch.nn.Module, Callable[[torch.nn.Module], Any], bool]  # module, call, is training
PEERS = ("eager", "inductor", "svod")


def _transformers() -> Any:
    if find_spec("torchvision") is not None:  # transformers imports it where it is there
        _torchvision()
    import transformers

    return transformers


def _torchvision() -> Any:
    from tests.frontend.torch.vision import torchvision

    return torchvision()


def _ids(vocabulary: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, shape)


def resnet50() -> Work:
    x = torch.randn(1, 3, 224, 224)
    return _torchvision().models.resnet50().eval(), lambda f: f(x), False


def bert() -> Work:
    tr = _transformers()
    ids = _ids(30522, 1, 128)
    return tr.BertModel(tr.BertConfig()).eval(), lambda f: f(ids)[0], False


def gpt2() -> Work:
    tr = _transformers()
    ids = _ids(50257, 1, 128)
    model = tr.GPT2LMHeadModel(tr.GPT2Config(use_cache=False)).eval()
    return model, lambda f: f(ids).logits, False


def vit() -> Work:
    tr = _transformers()
    x = torch.randn(1, 3, 224, 224)
    return tr.ViTModel(tr.ViTConfig()).eval(), lambda f: f(x)[0], False


def whisper() -> Work:
    tr = _transformers()
    config = tr.WhisperConfig(
        d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536
    )
    x = torch.randn(1, 80, 3000)
    return tr.WhisperModel(config).get_encoder().eval(), lambda f: f(x)[0], False


def train_gpt2() -> Work:
    tr = _transformers()
    ids = _ids(50257, 2, 64)
    model = tr.GPT2LMHeadModel(tr.GPT2Config(n_layer=2, use_cache=False))
    return model, lambda f: f(ids, labels=ids).loss, True


def train_resnet18() -> Work:
    x, y = torch.randn(8, 3, 224, 224), _ids(1000, 8)
    loss = torch.nn.functional.cross_entropy
    return _torchvision().models.resnet18(), lambda f: loss(f(x), y), True


def train_vit() -> Work:
    tr = _transformers()
    config = tr.ViTConfig(
        hidden_size=192, intermediate_size=768, num_attention_heads=3, num_hidden_layers=12
    )
    x = torch.randn(4, 3, 224, 224)
    return tr.ViTModel(config), lambda f: f(x)[0].square().mean(), True


WORKS: dict[str, Callable[[], Work]] = {
    "ResNet-50": resnet50, "BERT-base 128": bert, "GPT-2 128": gpt2, "ViT-B": vit,
    "Whisper-tiny encoder": whisper, "train GPT-2 2 layers": train_gpt2,
    "train ResNet-18 batch 8": train_resnet18, "train ViT-tiny": train_vit,
}  # fmt: skip


def step(work: Work, compiled: torch.nn.Module) -> Callable[[], Any]:
    """One inference, or one forward, backward and update."""
    module, call, is_training = work
    if not is_training:

        def infer() -> Any:
            with torch.no_grad():
                return call(compiled)

        return infer
    optimizer = torch.optim.SGD(module.parameters(), 1e-4)

    def train() -> Any:
        optimizer.zero_grad()
        loss = call(compiled)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train


def compiled_by(peer: str, work: Work) -> torch.nn.Module:
    module, _, is_training = work
    if peer == "eager":
        return module
    if peer == "inductor":
        options = {} if is_training else {"freezing": True}
        return torch.compile(module, options=options)
    from svod.frontend.torch import backend

    return torch.compile(module, backend=backend, options={"freeze": not is_training})


def measure(
    name: str, peers: list[str], runs: int, clock: Callable[[], float]
) -> tuple[dict[str, tuple[float, float]], Callable[[], Any]]:
    """Seconds to compile and seconds per step of each contender, and the step of the last."""
    torch.manual_seed(0)
    work = WORKS[name]()
    steps, first, results = {}, {}, {}
    for peer in peers:
        torch._dynamo.reset()
        run = step(work, compiled_by(peer, work))
        start = clock()
        results[peer] = run()
        first[peer] = clock() - start
        run()
        steps[peer] = run
    if not work[2]:
        for peer in peers[1:]:
            torch.testing.assert_close(results[peer], results[peers[0]], rtol=1e-3, atol=1e-3)
    times: dict[str, list[float]] = {peer: [] for peer in peers}
    for _ in range(runs):
        for peer in peers:
            start = clock()
            steps[peer]()
            times[peer].append(clock() - start)
    # Process time is counted in coarse ticks on some machines: only its sum says something.
    middle = mean if clock is time.process_time else median
    found = {peer: (first[peer] - middle(times[peer]), middle(times[peer])) for peer in peers}
    return found, run


def line(name: str, found: dict[str, tuple[float, float]]) -> str:
    cells = [f"{name:24}"]
    for peer in PEERS:
        if peer in found:
            compile_s, step_s = found[peer]
            spent = "" if peer == "eager" else f" ({compile_s:6.1f} s)"
            cells.append(f"{step_s * 1e3:9.2f} ms{spent}")
    theirs = [step_s for peer, (_, step_s) in found.items() if peer != "svod"]
    if theirs and "svod" in found:
        cells.append(f"{min(theirs) / found['svod'][1]:5.2f}")
    return "  ".join(cells)


def kernels(run: Callable[[], Any], most: int = 25) -> list[str]:
    """The kernels of one step that take most time: milliseconds, how often, name."""
    import svod

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        with svod.profile(path):
            run()
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    spent: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for event in events:
        if event.get("ph") == "X":
            spent[event["name"]] += event["dur"]
            count[event["name"]] += 1
    return [f"  {t / 1e3:9.3f} ms {count[n]:5} {n}" for n, t in spent.most_common(most)]


def main(given: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.torch_models", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; all where none is given")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--cpu", action="store_true", help="process time")
    parser.add_argument("--profile", action="store_true", help="kernels of Svod's plans")
    chosen = parser.parse_args(given)
    import svod

    torch.set_num_threads(chosen.threads)
    svod.set_threads(chosen.threads)
    clock = time.process_time if chosen.cpu else time.perf_counter
    peers = [peer for peer in PEERS if peer in chosen.peers.split(",")]
    names = [n for n in WORKS if not chosen.names or any(p in n for p in chosen.names)]
    warnings.filterwarnings("ignore", module="torch")
    shown = "  ".join(f"{p:>12}" + ("" if p == "eager" else " (compile)") for p in peers)
    print(f"{'':24}  {shown}   best of torch / svod", flush=True)
    for name in names:
        found, run = measure(name, peers, chosen.runs, clock)
        print(line(name, found), flush=True)
        if chosen.profile and peers[-1] == "svod":
            print("\n".join(kernels(run)), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:  # compile times without what was kept
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
        os.environ["SVOD_CACHE_DIR"] = os.path.join(folder, "svod")
        main(sys.argv[1:])
