"""Adapters beside peft's: the same losses, and the same files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers as hf

import dl4all as dl
from dl4all.errors import ArgumentError, Dl4allError, FileFormatError, WeightsError
from tests.llm.conftest import IDX, Folders

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft
STEPS = 40
SETTINGS: dict[str, Any] = {"r": 4, "lora_alpha": 16, "target_modules": [
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"
]}  # fmt: skip


def batches() -> list[Any]:
    draw = np.random.default_rng(3)
    return [draw.integers(3, 97, (3, 12)) for _ in range(5)]


def their_model(folder: Path, **changes: Any) -> Any:
    torch.manual_seed(2)
    make: Any = hf.AutoModelForCausalLM.from_pretrained
    base = make(folder, attn_implementation="eager").float()
    return peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **{**SETTINGS, **changes}))


@pytest.fixture(scope="module")
def curve(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """The adapter that peft begins with, and its losses."""
    model = their_model(folders("llama")[0])
    begun = tmp_path_factory.mktemp("begun")
    model.save_pretrained(begun)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    losses = []
    for step in range(STEPS):
        x = torch.from_numpy(batches()[step % 5])
        scores = model(x[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad()
        backward: Any = loss.backward
        backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    return begun, losses


@pytest.mark.parametrize(
    ("device", "compiled", "steps"), [("cpu", False, STEPS), ("cpu", True, STEPS), ("vulkan:0", True, 8)]
)
def test_losses_are_those_of_peft(
    folders: Folders, curve: tuple[Path, list[float]], device: str, compiled: bool, steps: int
) -> None:
    begun, expected = curve
    model, _ = dl.llm.load(folders("llama")[0], device=device, adapter_path=begun)
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    assert len(trained) == 2 * 7 * 3
    frozen = model.layers[0].self_attn.q_proj.base.weight.numpy().copy()
    optimizer = dl.optim.AdamW(trained, lr=3e-3)

    def step(x: dl.Tensor, y: dl.Tensor) -> dl.Tensor:
        optimizer.zero_grad()
        loss = dl.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    run = dl.compile(step) if compiled else step
    parts = [(dl.tensor(b[:, :-1], device=device), dl.tensor(b[:, 1:], device=device)) for b in batches()]
    losses = [run(*parts[number % 5]).item() for number in range(steps)]
    np.testing.assert_allclose(losses, expected[:steps], rtol=1e-4)
    np.testing.assert_array_equal(model.layers[0].self_attn.q_proj.base.weight.numpy(), frozen)


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2"])
@pytest.mark.parametrize("changes", [{}, {"use_rslora": True, "target_modules": ["v_proj", "down_proj"]}])
def test_files_go_both_ways(folders: Folders, tmp_path: Path, name: str, changes: dict[str, Any]) -> None:
    folder, plain = folders(name)
    theirs = their_model(folder, **changes).eval()
    with torch.no_grad():
        for key, parameter in theirs.named_parameters():
            if "lora_B" in key:
                parameter.normal_(0, 0.1)
        expected = theirs(torch.from_numpy(IDX)).logits.numpy()
    theirs.save_pretrained(tmp_path / "theirs")
    model, _ = dl.llm.load(folder, device="cpu", adapter_path=tmp_path / "theirs")
    with dl.no_grad():
        found = model(dl.tensor(IDX)).numpy()
    assert np.abs(found - expected).max() < 3e-5 * np.abs(expected).max()
    assert np.abs(found - plain).max() > 0.01 * np.abs(expected).max()

    dl.llm.save_adapter(model, tmp_path / "ours", base=str(folder))
    make: Any = hf.AutoModelForCausalLM.from_pretrained
    again = peft.PeftModel.from_pretrained(
        make(folder, attn_implementation="eager").float(), tmp_path / "ours"
    )
    with torch.no_grad():
        np.testing.assert_allclose(again.eval()(torch.from_numpy(IDX)).logits.numpy(), expected, atol=1e-5)

    merged = dl.llm.merge(model)
    assert not any("lora" in key for key, _ in merged.named_parameters())
    with dl.no_grad():
        whole = merged(dl.tensor(IDX)).numpy()
    assert np.abs(whole - expected).max() < 1e-4 * np.abs(expected).max()


def test_dropout_and_the_first_outputs(folders: Folders) -> None:
    folder, plain = folders("llama")
    model, _ = dl.llm.load(folder, device="cpu")
    dl.llm.get_lora_model(model, dl.llm.LoraConfig(r=3, lora_dropout=0.5, target_modules="all-linear"))
    with dl.no_grad():
        np.testing.assert_allclose(model(dl.tensor(IDX)).numpy(), plain, atol=1e-4)  # B is 0
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                parameter.copy_(dl.randn(*parameter.shape))
        model.train()
        first, second = (model(dl.tensor(IDX)).numpy() for _ in range(2))
        assert np.abs(first - second).max() > 0.1
        model.eval()
        np.testing.assert_array_equal(*(model(dl.tensor(IDX)).numpy() for _ in range(2)))
    assert len(dl.llm.generate(model, None, [5, 6], 4)) == 4


@pytest.mark.parametrize("device", ["cpu", "vulkan:0"])
def test_adapters_beside_weights_of_four_bits(folders: Folders, device: str) -> None:
    """Gradients reach adapters through packed products as through their widened weights."""
    found = []
    for widened in (False, True):
        model, _ = dl.llm.load(folders("llama")[0], device=device)
        config = dl.quantization.Int4WeightOnlyConfig()

        def fits(layer: Any, _: str) -> bool:
            return bool(layer.in_features % 32 == 0)

        dl.quantization.quantize_(model, config, fits)
        layers: list[Any] = [
            m for m in model.modules() if isinstance(getattr(m, "weight", None), dl.quantization.Int4Weight)
        ]
        assert len(layers) == 6 * 3 + 1
        if widened:
            for layer in layers:
                layer.weight = dl.nn.Parameter(layer.weight.dequantized())
        dl.manual_seed(0)
        dl.llm.get_lora_model(model, dl.llm.LoraConfig(r=4, target_modules="all-linear"))
        draw = np.random.default_rng(5)
        with dl.no_grad():
            for key, parameter in model.named_parameters():
                if "lora" in key:
                    values = draw.normal(0, 0.1, parameter.shape).astype(np.float32)
                    parameter.copy_(dl.tensor(values, device=device))
        x = dl.tensor(IDX, device=device)
        loss = dl.nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        loss.backward()
        gradients = {k: p.grad.numpy() for k, p in model.named_parameters() if p.requires_grad}
        found.append({"loss": loss.detach().numpy(), **gradients})
        assert len(dl.llm.generate(model, None, [5, 6, 7], 3)) == 3
        if not widened:
            with pytest.raises(ArgumentError, match="quantised weights"):
                dl.llm.merge(model)
    assert len(found[0]) == 1 + 2 * 7 * 3
    for name, packed in found[0].items():
        largest = np.abs(found[1][name]).max()
        assert np.abs(packed - found[1][name]).max() < 1e-3 * largest, name


@pytest.mark.parametrize(
    ("changed", "error", "match"),
    [
        ({"peft_type": "IA3"}, FileFormatError, "another kind than LoRA without biases: 'IA3'"),
        ({"use_dora": True}, FileFormatError, "'use_dora'"),
        ({"r": 0}, FileFormatError, "r must be a positive integer, got 0"),
        ({"r": 5}, WeightsError, r"is of shape \(4, 32\), the model needs \(5, 32\)"),
        ({"target_modules": ["q_proj"]}, WeightsError, "which the model has not"),
        ({"target_modules": ["c_attn"]}, ArgumentError, "no layer is called c_attn"),
        ({"lora_alpha": "x"}, Dl4allError, "damaged"),
    ],
)
def test_adapters_that_do_not_fit(
    folders: Folders,
    curve: tuple[Path, list[float]],
    tmp_path: Path,
    changed: dict[str, Any],
    error: Any,
    match: str,
) -> None:
    bad = Path(shutil.copytree(curve[0], tmp_path / "bad"))
    document = json.loads((bad / "adapter_config.json").read_text())
    (bad / "adapter_config.json").write_text(json.dumps({**document, **changed}))
    with pytest.raises(error, match=match):
        dl.llm.load(folders("llama")[0], device="cpu", adapter_path=bad)


def test_adapters_that_cannot_be(folders: Folders, tmp_path: Path) -> None:
    model, _ = dl.llm.load(folders("llama")[0], device="cpu")
    for settings, match in (
        ({"r": 0}, "got 0"),
        ({"r": 2.5}, "got 2.5"),
        ({"lora_dropout": 1.0}, "lora_dropout < 1"),
    ):
        with pytest.raises(ArgumentError, match=match):
            dl.llm.LoraConfig(**settings)
    with pytest.raises(ArgumentError, match="no layer is called nothing"):
        dl.llm.get_lora_model(model, dl.llm.LoraConfig(target_modules=["nothing"]))
    for function in (dl.llm.merge, lambda m: dl.llm.save_adapter(m, tmp_path)):
        with pytest.raises(ArgumentError, match="the model has no adapters"):
            function(model)
    dl.llm.get_lora_model(model, dl.llm.LoraConfig())
    with pytest.raises(ArgumentError, match="adapters already"):
        dl.llm.get_lora_model(model, dl.llm.LoraConfig())
    fused, _ = dl.llm.load(folders("gpt2")[0], device="cpu")
    with pytest.raises(ArgumentError, match="peft's adapters are of other layers"):
        dl.llm.load_adapter(fused, tmp_path)
    with pytest.raises(FileFormatError, match=r"adapter_config\.json cannot be read"):
        dl.llm.load_adapter(dl.llm.load(folders("llama")[0], device="cpu")[0], tmp_path)
