"""The example that tunes a language model: it answers, and what it writes is a model of others, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers

import dl4all as dl
from tests.examples.test_training import run

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft


def test_tune_tiny_model(tmp_path: Path) -> None:
    output = run("tune_tiny_model", tmp_path, "--device", "cpu", "--folder", "model")
    first, last = output.split("loss of the answers: ")[1].split("\n")[0].split(", then ")
    assert float(last) < 0.1 < float(first)
    assert output.splitlines()[-1] == "What is better than never? Now is better than never."
    assert "not what it was told" not in output
    make: Any = transformers.AutoModelForCausalLM.from_pretrained
    theirs = peft.PeftModel.from_pretrained(make(tmp_path / "model"), tmp_path / "model" / "adapter").eval()
    model, tokenizer = dl.llm.load(
        tmp_path / "model", device="cpu", adapter_path=tmp_path / "model" / "adapter"
    )
    assert tokenizer is not None
    tokens = tokenizer.encode("<user>What counts?<end><assistant>", special=False)
    with torch.no_grad(), dl.no_grad():
        expected = theirs(torch.tensor([tokens])).logits.numpy()
        found = model(dl.tensor([tokens])).numpy()
    assert abs(found - expected).max() < 3e-5 * abs(expected).max()
