"""svod.hub.load: local folders of Hugging Face models."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import svod
from svod.base.errors import SvodError, UnsupportedError
from svod.frontend.torch import report
from tests.frontend.torch.vision import torchvision

pytest.importorskip("transformers", reason="model folders are transformers' format")
if find_spec("torchvision") is not None:  # transformers imports it where it is there
    torchvision()
import transformers as tr

_SMALL = {"vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def _llama() -> Any:
    return tr.LlamaForCausalLM(tr.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=64, **_SMALL,
    ))  # fmt: skip


def _bert() -> Any:
    return tr.BertModel(tr.BertConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, **_SMALL,
    ))  # fmt: skip


def _t5() -> Any:
    return tr.T5ForConditionalGeneration(tr.T5Config(
        d_model=32, d_ff=48, d_kv=8, num_layers=2, num_heads=4, decoder_start_token_id=0, **_SMALL,
    ))  # fmt: skip


_IDS = np.array([[5, 9, 3, 7, 1], [4, 4, 8, 2, 6]])
CASES = {
    "llama": (_llama, {"input_ids": _IDS}, "logits"),
    "bert": (_bert, {"input_ids": _IDS}, "last_hidden_state"),
    "t5": (_t5, {"input_ids": _IDS, "decoder_input_ids": _IDS[:, :3]}, "logits"),
}


def _folder(tmp_path: Path, name: str, **options: Any) -> tuple[Any, Path]:
    module = CASES[name][0]().eval()
    module.save_pretrained(tmp_path / name, **options)
    return module, tmp_path / name


@pytest.mark.parametrize("name", CASES)
def test_a_folder_runs_as_its_module(tmp_path: Path, name: str) -> None:
    module, folder = _folder(tmp_path, name, max_shard_size="20KB" if name == "llama" else "1GB")
    assert (folder / "model.safetensors.index.json").exists() == (name == "llama")
    _, inputs, output = CASES[name]
    with torch.no_grad():
        expected = module(**{k: torch.tensor(v) for k, v in inputs.items()})[output]
    model = svod.hub.load(folder)
    torch.testing.assert_close(model(**inputs)[output], expected, rtol=1e-4, atol=1e-4)
    assert report().plans >= 1 and not report().fallbacks
    found = model.program(inputs)(**inputs)
    np.testing.assert_allclose(found[output], expected, rtol=1e-4, atol=1e-4)


def test_weights_lie_in_the_mapped_file_alone(tmp_path: Path) -> None:
    _, folder = _folder(tmp_path, "bert")
    state = svod.hub.load(folder).module.state_dict()
    mapped = _mapped(folder / "model.safetensors")
    inside = [key for key, w in state.items() if any(a <= w.data_ptr() < b for a, b in mapped)]
    assert set(inside) == set(state)


def _mapped(path: Path) -> list[tuple[int, int]]:
    lines = [ln for ln in Path("/proc/self/maps").read_text().splitlines() if str(path) in ln]
    return [tuple(int(n, 16) for n in ln.split()[0].split("-")) for ln in lines]  # type: ignore[misc]


_ALONE = """
import sys, numpy as np, svod
found = svod.load_plan(sys.argv[1])(input_ids=np.array(%s))
np.save(sys.argv[2], found[0] if isinstance(found, tuple) else found)
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""


def test_a_saved_folder_runs_without_torch(tmp_path: Path) -> None:
    module, folder = _folder(tmp_path, "llama")
    svod.hub.load(folder).save(tmp_path / "m.svod", {"input_ids": _IDS})
    out = tmp_path / "out.npy"
    code = _ALONE % _IDS.tolist()
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "m.svod"), str(out)], check=True,
                   timeout=120)  # fmt: skip
    expected = module(torch.tensor(_IDS)).logits.detach()
    np.testing.assert_allclose(np.load(out), expected, rtol=1e-4, atol=1e-4)


def test_narrow_weights_stay_narrow_and_can_be_asked_for(tmp_path: Path) -> None:
    module, folder = _folder(tmp_path, "bert")
    module.to(torch.bfloat16).save_pretrained(folder)
    assert svod.hub.load(folder).module.dtype is torch.bfloat16
    assert svod.hub.load(folder, dtype="float32").module.dtype is torch.float32


def test_the_tokenizer_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    _, folder = _folder(tmp_path, "bert")
    model = svod.hub.load(folder)
    with pytest.raises(SvodError, match=r"no tokenizer\.json"):
        _ = model.tokenizer
    words = tokenizers.models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(words)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    assert model.tokenizer.encode("b a c").ids == [2, 1, 0]


def _changed(folder: Path, name: str, **changes: Any) -> None:
    found = {**json.loads((folder / name).read_text()), **changes}
    (folder / name).write_text(json.dumps(found))


def test_folders_that_cannot_be_taken_say_why(tmp_path: Path) -> None:
    with pytest.raises(SvodError, match="is no folder"):
        svod.hub.load("meta-llama/none")
    with pytest.raises(SvodError, match=r"no config\.json"):
        svod.hub.load(tmp_path)
    _, folder = _folder(tmp_path, "llama", max_shard_size="20KB")
    index = "model.safetensors.index.json"
    whole = (folder / index).read_text()
    for name in ("../other", "/etc/passwd", "a\\b", ".."):
        _changed(folder, index, weight_map={"x": name})
        with pytest.raises(SvodError, match="index names the file"):
            svod.hub.load(folder)
    (folder / index).write_text(whole)
    shard = folder / json.loads(whole)["weight_map"]["model.norm.weight"]
    shutil.move(shard, tmp_path / "away")
    with pytest.raises(SvodError, match=r"shard .* is missing"):
        svod.hub.load(folder)
    shard.write_bytes((tmp_path / "away").read_bytes()[:-4])
    with pytest.raises(SvodError, match="bytes"):
        svod.hub.load(folder)
    shutil.move(tmp_path / "away", shard)
    _changed(folder, "config.json", quantization_config={"bits": 4})
    with pytest.raises(UnsupportedError, match="quantised"):
        svod.hub.load(folder)


def test_other_architectures_and_weights_are_refused(tmp_path: Path) -> None:
    _, folder = _folder(tmp_path, "bert")
    _changed(folder, "config.json", hidden_size=64)
    with pytest.raises((SvodError, RuntimeError), match=r"do not fit|size mismatch|mismatched"):
        svod.hub.load(folder)
    _changed(folder, "config.json", architectures=["Mine"], auto_map={"AutoModel": "mine.Mine"})
    with pytest.raises(SvodError, match="code is in the folder, which is not run"):
        svod.hub.load(folder)
    (folder / "config.json").write_text("[")
    with pytest.raises(SvodError, match="not JSON"):
        svod.hub.load(folder)
