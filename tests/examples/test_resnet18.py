"""``examples/resnet18.py``, run as a command on real photographs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.cli.run import run as run_command
from examples import resnet18
from tests.support.forked_process import run_forked

ROOT = Path(__file__).parents[2]
torch = pytest.importorskip("torch", reason="PyTorch writes the weight files")


def photograph(name: str) -> Path:
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        pytest.skip("the photographs come with scikit-learn")
    return Path(spec.origin).parent / "datasets" / "images" / name


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_forked(
        [sys.executable, ROOT / "examples" / "resnet18.py", *map(str, arguments)],
        env={**os.environ, "DL4ALL_DEVICE": ""},
    )


def report(*arguments: object) -> dict[str, Any]:
    done = run(*arguments, "--json", "--repeat", 1)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state dict as torchvision's, every entry random with spread, as PyTorch writes it."""
    rng = np.random.default_rng(7)
    state = {}
    for name, tensor in dl.models.resnet18().state_dict().items():
        if name.endswith("num_batches_tracked"):
            state[name] = torch.tensor(3)
            continue
        fan_in = int(np.prod(tensor.shape[1:])) or 1
        values = rng.normal(0, (2 / fan_in) ** 0.5, tensor.shape)
        if len(tensor.shape) == 1:
            values = rng.uniform(0.5, 1.5, tensor.shape) if "var" in name or "weight" in name else values / 8
        state[name] = torch.tensor(values, dtype=torch.float32)
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(state, path)
    return path


@pytest.fixture(scope="module")
def expected(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> npt.NDArray[np.float32]:
    """Logits of both photographs on the CPU, which tests/models compares with PyTorch."""
    path = tmp_path_factory.mktemp("expected") / "logits.npy"
    images = photograph("china.jpg"), photograph("flower.jpg")
    report(*images, "--device", "cpu", "--weights", weights, "--save-logits", path)
    found: npt.NDArray[np.float32] = np.load(path)
    assert found.shape == (2, 1000)
    assert found.std() > 0.1
    return found


def test_every_device_gives_the_same_logits(
    device: str, weights: Path, expected: npt.NDArray[np.float32], tmp_path: Path
) -> None:
    images = photograph("china.jpg"), photograph("flower.jpg")
    path = tmp_path / "logits.npy"
    found = report(*images, "--device", device, "--weights", weights, "--save-logits", path, "--batch", 3)
    assert found["device"] == device
    assert found["input_shape"] == [3, 3, 224, 224]
    assert found["output_shape"] == [2, 1000]
    assert found["milliseconds_per_image"] > 0
    assert found["random_weights"] is False
    assert found["logits_file"] == str(path)
    logits = np.load(path)
    assert np.abs(logits - expected).max() / np.abs(expected).max() < 1e-4
    for row, image, file in zip(logits, found["images"], images, strict=True):
        assert image["file"] == str(file)
        assert image["top5"] == np.argsort(-row, kind="stable")[:5].tolist()
        shares = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        np.testing.assert_allclose(image["probabilities"], np.sort(shares)[::-1][:5], rtol=1e-4)


def test_safetensors_and_pth_give_the_same(
    weights: Path, expected: npt.NDArray[np.float32], tmp_path: Path
) -> None:
    same = tmp_path / "resnet18.safetensors"
    dl.io.save_weights(same, dl.io.load_weights(weights))
    path = tmp_path / "logits.npy"
    report(photograph("china.jpg"), "--device", "cpu", "--weights", same, "--save-logits", path)
    np.testing.assert_allclose(np.load(path), expected[:1], rtol=1e-4, atol=1e-4)


def test_table_names_labels_time_and_device(weights: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(f"thing number {i}" for i in range(1000)))
    done = run(photograph("flower.jpg"), "--device", "cpu", "--weights", weights, "--labels", labels)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.count("thing number") == 5
    assert "ms per image on cpu" in done.stdout


def test_without_weights_it_says_that_the_labels_mean_nothing() -> None:
    done = run(photograph("flower.jpg"), "--device", "cpu", "--repeat", 1)
    assert done.returncode == 0
    assert "labels below mean nothing" in done.stderr


# Digits, with the network that comes along


def test_digits(device: str, tmp_path: Path) -> None:
    path = tmp_path / "logits.npy"
    found = report("--device", device, "--save-logits", path, "--batch", 100)
    assert found["device"] == device
    assert found["input_shape"] == [100, 1, 32, 32]
    assert found["output_shape"] == [359, 10]
    assert found["random_weights"] is False
    assert np.load(path).argmax(1).tolist() == found["answers"]
    right = np.array(found["answers"]) == np.array(found["truth"])
    assert found["accuracy"] == right.mean() >= 0.98
    labels = dl.data.digits().arrays[1]
    held_out = dl.data.random_split(dl.data.digits(), (0.8, 0.2))[1].indices
    assert found["truth"] == labels[held_out].tolist()


def test_table_of_digits_counts_them() -> None:
    done = run("--device", "cpu", "--repeat", 1)
    assert done.returncode == 0
    assert done.stderr == ""
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "│" in line
    ]
    assert [row[0] for row in rows] == [str(digit) for digit in range(10)]
    held, right = (sum(int(row[column]) for row in rows) for column in (1, 2))
    wrong = sum(len(row[3].split(",")) for row in rows if row[3])
    assert held == right + wrong == 359
    assert f"accuracy {right / held:.2%}: {right} of 359 digits" in done.stdout
    assert "ms per image on cpu" in done.stdout
    assert "batch 64" in done.stdout


# Bad input


def changed(weights: Path, path: Path, **entries: Any) -> Path:
    state = torch.load(weights)
    for name, value in entries.items():
        name = name.replace("__", ".")
        if value is None:
            del state[name]
        else:
            state[name] = value
    torch.save(state, path)
    return path


class Hostile:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.trace}",)


def bad_inputs(folder: Path, weights: Path) -> dict[str, tuple[list[object], list[str]]]:
    """Arguments, and what the message must contain."""
    image = photograph("china.jpg")
    text = folder / "not_a_picture.jpg"
    text.write_text("hello")
    truncated = folder / "truncated.safetensors"
    dl.io.save_weights(folder / "whole.safetensors", {"fc.bias": np.arange(1000, dtype=np.float32)})
    truncated.write_bytes((folder / "whole.safetensors").read_bytes()[:-100])
    hostile = folder / "hostile.pth"
    torch.save({"fc.bias": Hostile(folder / "it_ran")}, hostile)
    short = folder / "labels.txt"
    short.write_text("cat\ndog\n")
    missing = changed(weights, folder / "missing.pth", fc__bias=None)
    unexpected = changed(weights, folder / "unexpected.pth", fc2__bias=torch.ones(3))
    misshapen = changed(weights, folder / "misshapen.pth", fc__bias=torch.ones(10))
    return {
        "weights without image": (["--weights", weights], ["--weights", "no IMAGE"]),
        "labels without image": (["--labels", short], ["--labels", "no IMAGE"]),
        "missing image": ([folder / "none.jpg"], ["none.jpg"]),
        "unreadable image": ([text], ["not_a_picture.jpg"]),
        "folder as image": ([folder], [folder.name]),
        "missing weights": ([image, "--weights", folder / "none.pth"], ["none.pth"]),
        "missing key": ([image, "--weights", missing], ["missing", "fc.bias"]),
        "unexpected key": ([image, "--weights", unexpected], ["unexpected", "fc2.bias"]),
        "misshapen key": ([image, "--weights", misshapen], ["fc.bias", "(1000,)", "(10,)"]),
        "truncated weights": ([image, "--weights", truncated], ["truncated.safetensors"]),
        "hostile pickle": ([image, "--weights", hostile], ["hostile.pth", "system"]),
        "wrong labels": ([image, "--labels", short], ["labels.txt", "1000"]),
        "unknown device": ([image, "--device", "cuda:0"], ["cuda:0", "cpu"]),
        "no such device": ([image, "--device", "vulkan:7"], ["vulkan:7", "cpu"]),
        "device without index": ([image, "--device", "vulkan:x"], ["vulkan:x", "cpu"]),
        "batch 0": ([image, "--batch", 0], ["--batch", "0"]),
        "batch not a number": ([image, "--batch", "many"], ["--batch", "many"]),
        "repeat 0": ([image, "--repeat", 0], ["--repeat", "0"]),
        "unknown flag": ([image, "--devise", "cpu"], ["--devise"]),
        "unwritable logits": (
            [
                image,
                "--repeat",
                1,
                "--device",
                "cpu",
                "--weights",
                weights,
                "--save-logits",
                folder / "no" / "x.npy",
            ],
            ["x.npy"],
        ),
    }


def test_bad_input_is_one_line_and_status_2(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the command does it, but within this process: a start takes longer than a refusal."""
    monkeypatch.setenv("DL4ALL_DEVICE", "")
    wrong = {}
    for case, (arguments, words) in bad_inputs(tmp_path, weights).items():
        monkeypatch.setattr(sys, "argv", ["resnet18.py", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            run_command(resnet18.classify, "resnet18.py")
        out, err = capsys.readouterr()
        lines = err.splitlines()
        if end.value.code != 2 or len(lines) != 1 or out or not all(w in lines[0] for w in words):
            wrong[case] = (end.value.code, out, err, words)
    assert wrong == {}
    assert not (tmp_path / "it_ran").exists()
