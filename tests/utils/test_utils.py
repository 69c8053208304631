"""The paths of torch.utils: what scripts import from there works."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, FileFormatError, ShapeError
from dl4all.utils.checkpoint import checkpoint, checkpoint_sequential


def test_the_paths_of_pytorch() -> None:
    from dl4all.utils.data import DataLoader, Dataset, TensorDataset, random_split
    from dl4all.utils.data.dataloader import default_collate
    from dl4all.utils.data.dataset import Dataset as Same
    from dl4all.utils.data.distributed import DistributedSampler
    from dl4all.utils.data.sampler import RandomSampler

    assert Dataset is Same is dl.data.Dataset
    assert DataLoader is dl.utils.data.DataLoader is dl.utils.data.dataloader.DataLoader
    assert None not in (TensorDataset, random_split, default_collate, DistributedSampler, RandomSampler)


def model() -> dl.nn.Sequential:
    dl.manual_seed(2)
    return dl.nn.Sequential(
        dl.nn.Linear(3, 7), dl.nn.Tanh(), dl.nn.Dropout(0.5), dl.nn.Linear(7, 5), dl.nn.ReLU()
    )


@pytest.mark.parametrize(("segments", "use_reentrant"), [(1, True), (2, False), (5, None)])
def test_checkpoints_change_no_gradient(device: str, segments: int, use_reentrant: bool | None) -> None:
    x = np.random.default_rng(3).standard_normal((11, 3)).astype(np.float32)
    results = []
    for way in ("plain", "checkpoint", "sequential"):
        network, inputs = model().to(device), dl.tensor(x, device=device, requires_grad=True)
        dl.manual_seed(5)
        if way == "plain":
            outputs = network(inputs)
        elif way == "checkpoint":
            outputs = checkpoint(network, inputs, use_reentrant=use_reentrant)
        else:
            outputs = checkpoint_sequential(network, segments, inputs, use_reentrant=use_reentrant)
        (outputs**2).sum().backward()
        results.append([outputs, inputs.grad, *(p.grad for p in network.parameters())])
    for other in results[1:]:
        for found, expected in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())


def test_checkpoint_takes_options() -> None:
    calls: list[str] = []

    class Noted:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            calls.append(self.name)

        def __exit__(self, *error: object) -> None:
            pass

    x = dl.tensor([2.0, 3.0], device="cpu", requires_grad=True)
    result = checkpoint(
        lambda a, *, power: (a**power).exp(), x, power=2, use_reentrant=False, determinism_check="none",
        context_fn=lambda: (Noted("first"), Noted("second")),
    )  # fmt: skip
    assert calls == ["first"]
    result.sum().backward()
    assert calls == ["first", "second"]
    with pytest.raises(ArgumentError, match="preserve_rng_state"):
        checkpoint(lambda a: a, x, preserve_rng_state=False)
    with pytest.raises(ArgumentError, match="segments must be at most 5"):
        checkpoint_sequential(model(), 6, x)


def test_weights_that_were_fetched_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    url = "https://example.org/models/net-01234567.pth?download=1"
    with pytest.raises(
        ArgumentError, match=r"curl --create-dirs -L -o .*checkpoints/net-01234567\.pth https"
    ):
        dl.utils.model_zoo.load_url(url)
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    dl.save({"w": dl.arange(3)}, folder / "net-01234567.pth")
    assert dl.hub.load_state_dict_from_url(url, progress=True)["w"].tolist() == [0, 1, 2]
    with pytest.raises(FileFormatError, match="its sha256 begins with"):
        dl.hub.load_state_dict_from_url(url, check_hash=True)
    with pytest.raises(AttributeError, match="not planned"):
        dl.hub.load("pytorch/vision", "resnet18")


# SummaryWriter


@pytest.fixture
def events(tmp_path: Path) -> Any:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read(folder: str = "") -> Any:
        logging.getLogger("tensorboard").setLevel(logging.ERROR)
        found = EventAccumulator(str(tmp_path / folder), size_guidance={"tensors": 0, "images": 0})
        found.Reload()
        return found

    return read


def test_scalars_histograms_texts(tmp_path: Path, events: Any) -> None:
    values = np.random.default_rng(3).standard_normal((7, 11))
    with dl.utils.tensorboard.SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", dl.tensor([1.5 * step]), step, walltime=10.0)
        writer.add_histogram("weights", dl.tensor(values), 4)
        writer.add_histogram("few", values, 4, bins="auto", max_bins=3)
        writer.add_text("note", "**hello**", 5)
        writer.add_scalars("both", {"train": 1.0, "test": 2.0}, 6)
        writer.flush()
        with pytest.raises(ShapeError, match=r"expected one number, got shape \(2,\)"):
            writer.add_scalar("x", np.ones(2))
        with pytest.raises(ArgumentError, match="at least one value"):
            writer.add_histogram("x", [])
        with pytest.raises(ArgumentError, match="add_graph"):
            writer.add_graph(None)
        assert writer.get_logdir() == str(tmp_path)
    found = events()
    assert [(e.step, e.value, e.wall_time) for e in found.Scalars("loss")] == [
        (0, 0.0, 10.0), (1, 1.5, 10.0), (2, 3.0, 10.0),
    ]  # fmt: skip
    for name in ("weights", "few"):
        histogram = found.Histograms(name)[0].histogram_value
        assert histogram.num == 77
        assert histogram.min == values.min()
        assert sum(histogram.bucket) == 77
        assert len(histogram.bucket) == len(histogram.bucket_limit)
        assert list(histogram.bucket_limit) == sorted(histogram.bucket_limit)
    assert len(found.Histograms("few")[0].histogram_value.bucket) <= 4
    assert found.Tensors("note/text_summary")[0].tensor_proto.string_val == [b"**hello**"]
    assert [e.value for e in events("both_test").Scalars("both")] == [2.0]


def test_images_figures_and_options(tmp_path: Path, events: Any) -> None:
    image = pytest.importorskip("PIL.Image")
    plt = pytest.importorskip("matplotlib.pyplot")
    pixels = np.random.default_rng(3).integers(0, 256, (3, 5, 7), np.uint8)
    writer = dl.utils.tensorboard.SummaryWriter(tmp_path)
    writer.add_image("bytes", dl.tensor(pixels), 1)
    writer.add_image("floats", dl.tensor(pixels[0] / 255.0, dtype="float64"), 1, dataformats="HW")
    writer.add_images("batch", pixels[:, None], 1)
    figure, _ = plt.subplots(figsize=(1, 1))
    writer.add_figure("figure", figure)
    writer.add_hparams({"lr": 0.1, "deep": True, "name": "a"}, {"accuracy": 0.5}, run_name="run")
    with pytest.raises(ShapeError, match="expected 1, 3 or 4 channels, got 5"):
        writer.add_image("x", np.zeros((5, 3, 7)))
    with pytest.raises(ShapeError, match=r"axes CHW, such as CHW, got shape \(3, 7\)"):
        writer.add_image("x", np.zeros((3, 7)))
    with pytest.raises(ArgumentError, match="lr must be a number"):
        writer.add_hparams({"lr": [1]}, {})
    writer.close()
    found = events()

    def decoded(name: str) -> Any:
        return np.asarray(image.open(io.BytesIO(found.Images(name)[0].encoded_image_string)))

    np.testing.assert_array_equal(decoded("bytes"), pixels.transpose(1, 2, 0))
    np.testing.assert_array_equal(decoded("floats"), pixels[0])
    assert decoded("batch").shape == (10, 14)
    assert "figure" in found.Tags()["images"]
    assert [e.value for e in events("run").Scalars("accuracy")] == [0.5]
