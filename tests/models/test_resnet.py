"""ResNet-18 beside the same network in PyTorch, with the same weights."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import dl4all as dl
from dl4all.errors import WeightsError
from tests.support.forked_process import run_forked

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")
torch_resnet = pytest.importorskip("benchmarks.torch_resnet")

SIZES = ((224, 224), (197, 243))
# Some 20 layers, each with sums of up to 4608 products rounded at 6e-8, in another order than PyTorch's;
# an error that is wrong in kind (a pixel, a channel, a missing eps) shows at 1e-3 and above.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def reference() -> Any:
    return torch_resnet.resnet18()


@pytest.fixture(scope="module")
def state(reference: Any) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in reference.state_dict().items()}


@pytest.fixture(scope="module")
def expected(reference: Any) -> dict[tuple[int, int, int], Any]:
    """Images and PyTorch's logits by batch, height and width."""
    found = {}
    for batch, (height, width) in zip((1, 3), SIZES, strict=True):
        x = torch_resnet.images(batch, height, width)
        with torch.no_grad():
            found[batch, height, width] = x.numpy(), reference(x).numpy()
    return found


def test_the_reference_is_worth_comparing_with(reference: Any, state: dict[str, Any]) -> None:
    """Nothing vanishes or explodes in it, every weight matters, and pictures have different logits."""
    for name, result in torch_resnet.stages(reference, torch_resnet.images(3, 224, 224)).items():
        assert 1e-2 < result.std() < 1e2, name
        assert 0.2 < (result != 0).float().mean() <= 1, name
    logits = torch_resnet.stages(reference, torch_resnet.images(3, 224, 224))["fc"]
    assert (logits[0] - logits[1]).abs().max() > 0.05 * logits.abs().max()
    for name, array in state.items():
        if array.ndim:
            assert array.std() > 1e-3, name
            assert len(np.unique(array)) > array.size // 2, name
        else:
            assert array > 0, name


def test_state_dict(state: dict[str, Any]) -> None:
    ours = dl.models.resnet18().state_dict()
    assert len(ours) == 122
    assert list(ours) == list(state)
    assert {name: t.shape for name, t in ours.items()} == {name: a.shape for name, a in state.items()}
    assert {name: t.dtype for name, t in ours.items()} == {name: a.dtype for name, a in state.items()}
    assert sum(p.numel() for p in dl.models.resnet18().parameters()) == 11_689_512


@pytest.mark.parametrize("fold", [False, True], ids=["as it is", "folded"])
def test_logits(fold: bool, device: str, state: dict[str, Any], expected: dict[Any, Any]) -> None:
    net = dl.models.resnet18().eval()
    net.load_state_dict(state)
    if fold:
        assert net.fold_batch_norm() is net
        assert not any(isinstance(module, dl.nn.BatchNorm2d) for module in net.modules())
        assert len(net.state_dict()) == 42  # weight and bias of 20 convolutions and of the classifier
    net.to(device)
    for case, (x, logits) in expected.items():
        got = net(dl.from_numpy(x, device)).numpy()
        assert got.shape == logits.shape == (case[0], 1000)
        assert np.abs(got - logits).max() <= TOLERANCE * np.abs(logits).max(), case


def test_logits_of_a_batch_are_those_of_its_images(
    device: str, state: dict[str, Any], expected: dict[Any, Any]
) -> None:
    net = dl.models.resnet18().eval()
    net.load_state_dict(state)
    net.to(device)
    x, logits = expected[3, 197, 243]
    for i in range(3):
        got = net(dl.from_numpy(x[i : i + 1], device)).numpy()
        assert np.abs(got - logits[i : i + 1]).max() <= TOLERANCE * np.abs(logits).max()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", ["zip", "legacy", "safetensors"])
def test_weight_files(form: str, tmp_path: Path, reference: Any, state: dict[str, Any], device: str) -> None:
    path = tmp_path / ("resnet18." + ("safetensors" if form == "safetensors" else "pth"))
    if form == "safetensors":
        save_file(
            {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in state.items()}, path
        )
    else:
        torch.save(reference.state_dict(), path, _use_new_zipfile_serialization=form == "zip")
    net = dl.models.resnet18().to(device)
    assert net.load_state_dict(dl.io.load_weights(path)) == ([], [])
    for name, tensor in net.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), state[name])


def test_our_state_dict_loads_into_the_reference(state: dict[str, Any]) -> None:
    dl.manual_seed(9)
    ours = dl.models.resnet18().state_dict()
    theirs = torch_resnet.ResNet18()
    theirs.load_state_dict({name: torch.from_numpy(tensor.numpy().copy()) for name, tensor in ours.items()})
    assert not np.array_equal(ours["conv1.weight"].numpy(), state["conv1.weight"])


def test_a_folded_network_takes_no_original_weights(state: dict[str, Any]) -> None:
    net = dl.models.resnet18().eval().fold_batch_norm()
    with pytest.raises(WeightsError, match=r"unexpected keys: bn1\.weight"):
        net.load_state_dict(state)


def test_other_numbers_of_classes(device: str) -> None:
    net = dl.models.resnet18(num_classes=7).eval().to(device)
    assert net(dl.rand(2, 3, 32, 32, device=device)).shape == (2, 7)
    with pytest.raises(
        WeightsError, match=r"fc\.weight: the network has \(7, 512\), the weights \(1000, 512\)"
    ):
        net.load_state_dict(dl.models.resnet18().state_dict())


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "extra"),
    [
        ((), []),
        (("--compiled", "--no-fold", "--batch", "3", "--threads", "1", "--cpu-time"), ["cpu compiled"]),
    ],
)
def test_the_benchmark_runs(options: tuple[str, ...], extra: list[str]) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "resnet18.py"
    done = run_forked(
        [sys.executable, script, "--device", "cpu", "--repeat", "1", "--json", *options],
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    times, differences = report["milliseconds_per_image"], report["largest_relative_difference"]["cpu"]
    assert list(times) == ["PyTorch CPU", "cpu", *extra]
    assert all(taken["median"] >= taken["fastest"] > 0 for taken in times.values())
    assert len(differences) == 8
    assert 0 < max(differences.values()) <= TOLERANCE
