"""Hugging Face's Trainer takes dlall by itself, and the CPU where it is told to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import dl4all.torch  # noqa: E402, F401
from tests.pytorch.device.frameworks.training import CLOSE  # noqa: E402

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")

WORDS, LENGTH, ROWS = 37, 7, 24


@pytest.fixture(autouse=True)
def no_state() -> Iterator[None]:
    """accelerate keeps the first choice of a process."""
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def trainer(folder: Path, **options: Any) -> Any:
    torch.manual_seed(5)
    config = transformers.BertConfig(
        vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    ids = torch.randint(3, WORDS, (ROWS, LENGTH))
    rows = [{"input_ids": row, "labels": int(row[0] > 18)} for row in ids]
    arguments = transformers.TrainingArguments(
        str(folder), num_train_epochs=3, per_device_train_batch_size=8, learning_rate=1e-2, logging_steps=1,
        report_to="none", disable_tqdm=True, save_strategy="epoch", **options,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    return transformers.Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)


def losses(trained: Any) -> list[float]:
    return [entry["loss"] for entry in trained.state.log_history if "loss" in entry]


def test_losses_are_those_of_the_cpu(tmp_path: Path) -> None:
    found = {}
    for device, options in {"dlall": {}, "cpu": {"use_cpu": True}}.items():  # one after the other: one state
        trained = trainer(tmp_path / device, **options)
        trained.train()
        assert (trained.args.device.type, trained.model.device.type) == (device, device)
        found[device] = [*losses(trained), trained.evaluate()["eval_loss"]]
    assert found["dlall"] == pytest.approx(found["cpu"], rel=50 * CLOSE)  # logged with four digits
    assert "ACCELERATE_TORCH_DEVICE" not in os.environ
    resumed = trainer(tmp_path / "dlall")
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == trained.state.global_step


def test_bfloat16(tmp_path: Path) -> None:
    halves = trainer(tmp_path / "bfloat16", bf16=True)
    halves.train()
    assert halves.model.device.type == "dlall"
    assert losses(halves)[-1] < losses(halves)[0]


def test_a_model_loads_to_the_device(tmp_path: Path) -> None:
    torch.manual_seed(6)
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=16, n_layer=1, n_head=2, n_positions=16, bos_token_id=1, eos_token_id=2
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(tmp_path)
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, device_map="dlall")
    assert loaded.device.type == "dlall"
    ids = torch.randint(3, WORDS, (1, 5))
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    assert loaded.generate(ids.to("dlall"), **options).tolist() == model.generate(ids, **options).tolist()
