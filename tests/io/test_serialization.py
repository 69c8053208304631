"""dl.save and dl.load: PyTorch reads what we write and the reverse, and nothing else gets into a file."""

from __future__ import annotations

import io
import logging
import zipfile
from collections import Counter, OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, FileFormatError, WeightsError
from dl4all.io import torch_writer

torch = pytest.importorskip("torch", reason="files are read and written by PyTorch too")

SCALARS = [0, -5, 255, 65536, 2**40, -(2**90), 3.5, float("inf"), None, True, "é\n", b"\x00\xff", b"", 1 + 2j]
DTYPES = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")


def random(shape: tuple[int, ...], dtype: str = "float32", seed: int = 3) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(seed).standard_normal(shape) * 9).astype(dtype)


def everything(device: str) -> dict[Any, Any]:
    x = dl.tensor(random((5, 7)), device=device)
    shared = [1, (2, [3])]
    return {
        "tensors": {dtype: dl.tensor(random((3, 5), dtype), device=device) for dtype in DTYPES},
        "views": [x, x.t(), x[1:4, ::2], x[0].unsqueeze(0).expand(3, 7)],
        "shapes": (dl.tensor(2.5), dl.zeros(0, 3), dl.zeros(1)),
        "ordered": OrderedDict(b=1, a=OrderedDict()),
        "values": SCALARS,
        "again": [shared, shared],
        "dtype": np.dtype("float16"),
        "number": np.float32(2.5),
        "set": {1, "a"},
        "counter": Counter({3: 2, 5: 1}),
        3: {None: 1.5, True: "x"},
    }


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, dl.Tensor):
        np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy(), strict=True)
    elif isinstance(expected, (list, tuple)):
        assert type(found) is type(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert type(found) is type(expected)
        assert list(found) == list(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, np.dtype):
        assert str(found).removeprefix("torch.") == expected.name
    else:
        assert found == expected


def test_pytorch_reads_it_and_so_do_we(device: str, tmp_path: Path) -> None:
    value = everything(device)
    dl.save(value, tmp_path / "a.pth")
    for options in ({}, {"mmap": True}):
        theirs = torch.load(tmp_path / "a.pth", weights_only=True, **options)
        assert_same(theirs, value)
    assert theirs["views"][1].untyped_storage().data_ptr() == theirs["views"][0].untyped_storage().data_ptr()
    ours = dl.load(str(tmp_path / "a.pth"))
    assert_same(ours, value)
    assert [tensor.device.name for tensor in ours["views"]] == [device] * 4
    assert len({id(tensor.storage) for tensor in ours["views"]}) == 1
    assert ours["again"][0] is ours["again"][1]
    torch.save(theirs, tmp_path / "b.pth")
    assert_same(dl.load(tmp_path / "b.pth"), value)


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_what_pytorch_writes(tmp_path: Path, new: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model(torch.randn(7, 3)).sum().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "size": torch.Size([2, 3]),
        "parameter": model[0].weight, "bfloat16": torch.randn(3).bfloat16(), "dtype": torch.int64,
    }  # fmt: skip
    file = io.BytesIO()
    torch.save(state, file, _use_new_zipfile_serialization=new)
    file.seek(0)
    loaded = dl.load(file, weights_only=False)
    assert isinstance(loaded["model"], OrderedDict)
    assert loaded["size"] == (2, 3)
    assert isinstance(loaded["parameter"], dl.nn.Parameter)
    assert loaded["parameter"].requires_grad
    assert loaded["bfloat16"].tolist() == state["bfloat16"].tolist()
    ours = dl.nn.Sequential(dl.nn.Linear(3, 5), dl.nn.BatchNorm1d(5))
    ours.load_state_dict(loaded["model"])
    dl.optim.Adam(ours.parameters(), lr=0.5).load_state_dict(loaded["optimizer"])
    np.testing.assert_array_equal(ours[0].weight.detach().numpy(), model[0].weight.detach().numpy())


def test_a_run_is_saved_and_goes_on(tmp_path: Path) -> None:
    """In the form of PyTorch's own tutorials."""

    def make() -> tuple[Any, Any, Any]:
        dl.manual_seed(3)
        model = dl.nn.Linear(3, 2)
        optimizer = dl.optim.AdamW(model.parameters(), lr=0.1)
        return model, optimizer, dl.optim.lr_scheduler.StepLR(optimizer, 2)

    def train(model: Any, optimizer: Any, schedule: Any) -> None:
        loss = (model(dl.tensor(random((5, 3)))) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

    parts = make()
    for _ in range(3):
        train(*parts)
    names = ("model", "optimizer", "schedule")
    dl.save({name: part.state_dict() for name, part in zip(names, parts, strict=True)}, tmp_path / "a.pt")
    train(*parts)
    resumed = make()
    for part, state in zip(resumed, dl.load(tmp_path / "a.pt").values(), strict=True):
        part.load_state_dict(state)
    train(*resumed)
    assert_same(dict(resumed[0].state_dict()), dict(parts[0].state_dict()))


def test_a_checkpoint_in_place_of_a_state_dict_is_seen() -> None:
    model = dl.nn.Linear(3, 2)
    state = {"model": model.state_dict(), "optimizer": {}}
    with pytest.raises(WeightsError, match=r"unexpected keys: model, optimizer; 'model' holds a state dict"):
        model.load_state_dict(state)


def test_file_objects_and_safetensors(tmp_path: Path) -> None:
    value = {"x": dl.tensor(random((3, 5))), "y": dl.arange(7)}
    file = io.BytesIO(b"before")
    file.seek(6)
    dl.save(value, file)
    dl.save([1], tmp_path / "a.pt")
    file.seek(6)
    assert_same(dl.load(file), value)
    with (tmp_path / "b.pt").open("wb") as stream:
        dl.save(value, stream)
    with (tmp_path / "b.pt").open("rb") as stream:
        assert_same(dl.load(stream), value)
    dl.save(value, tmp_path / "c.safetensors")
    assert_same(dict(sorted(dl.load(tmp_path / "c.safetensors").items())), value)
    assert sorted(dl.io.load_weights(tmp_path / "c.safetensors")) == ["x", "y"]


def test_large_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the header of entries of 2 GiB and more, which small ones may have as well."""
    monkeypatch.setattr(torch_writer, "LARGE", 20)
    value = {"x": dl.tensor(random((3, 5))), "y": dl.arange(2)}
    dl.save(value, tmp_path / "a.pth")
    assert_same(torch.load(tmp_path / "a.pth", weights_only=True, mmap=True), value)
    assert_same(dl.load(tmp_path / "a.pth"), value)
    with pytest.raises(FileNotFoundError, match=r"folder of this file does not exist: .*none/a\.pth"):
        dl.save(value, tmp_path / "none" / "a.pth")


def test_map_location(tmp_path: Path) -> None:
    file = io.BytesIO()
    torch.save({"a": torch.ones(2), "b": torch.arange(3.0)}, file)
    raw = file.getvalue().replace(b"\x03\x00\x00\x00cpu", b"\x06\x00\x00\x00cuda:0")  # of a machine with CUDA
    assert raw != file.getvalue()
    path = tmp_path / "cuda.pt"
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(path, "w") as archive:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("data.pkl"):
                content = content.replace(b"\x03\x00\x00\x00cpu", b"\x06\x00\x00\x00cuda:0")
            archive.writestr(name, content)
    locations = []

    def chosen(storage: Any, location: str) -> Any:
        locations.append((storage.device.name, storage.dtype.name, location))
        return storage

    for where in (
        None,
        "cpu",
        dl.device("cpu"),
        {"cuda:0": "cpu"},
        {"cuda:1": "null:0"},
        chosen,
        lambda s, _: None,
    ):
        loaded = dl.load(path, map_location=where)
        assert loaded["b"].tolist() == [0, 1, 2]
        assert loaded["b"].device.name == "cpu"
    assert locations == [("cpu", "uint8", "cuda:0")] * 2
    with pytest.raises(ArgumentError, match="map_location must be a device"):
        dl.load(path, map_location=3)  # type: ignore[arg-type]


Pair = namedtuple("Pair", "a b")


class Other:
    def __init__(self) -> None:
        self.x = 1


def _itself() -> list[Any]:
    value: list[Any] = [1]
    value.append({"a": value})
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: dl.nn.Linear(2, 2), r"obj is of type Linear.*save obj.state_dict\(\), and load it by"),
        (lambda: {"a": [1, dl.nn.ReLU()]}, r"obj\['a'\]\[1\] is of type ReLU"),
        (lambda: dl.optim.SGD([dl.zeros(2).requires_grad_()], 0.1), r"save obj.state_dict\(\)$"),
        (lambda: {"a": np.ones(3)}, r"obj\['a'\] is of type ndarray.*dl.from_numpy"),
        (lambda: Pair(1, 2), "of type Pair.*_asdict"),
        (lambda: Other(), r"of type Other.*vars\(\.\.\.\)"),
        (lambda: [print], "leave it out"),
        (lambda: {(1, 2): 3}, "a tuple for a key"),
        (_itself, r"obj\[1\]\['a'\] holds itself"),
        (lambda: 1 << 5000, "an int of 5001 bits"),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_leaves_the_old_file(tmp_path: Path, value: Any, message: str) -> None:
    dl.save({"old": 1}, tmp_path / "a.pth")
    with pytest.raises(ArgumentError, match=message):
        dl.save(value(), tmp_path / "a.pth")
    assert dl.load(tmp_path / "a.pth") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.pth"]


def test_other_refusals(tmp_path: Path) -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ArgumentError, match="nested too deeply"):
        dl.save(nested, io.BytesIO())
    with pytest.raises(
        ArgumentError, match="expected a path or a binary file, got StringIO; open it in mode 'wb'"
    ):
        dl.save(1, io.StringIO())  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="a dict of tensors and nothing else, got a int under 'epoch'"):
        dl.save({"epoch": 1}, tmp_path / "a.safetensors")
    with pytest.raises(FileNotFoundError):
        dl.load(tmp_path / "none.pth")
    with pytest.raises(FileFormatError, match=r"BytesIO: was not written by torch\.save"):
        dl.load(io.BytesIO(b"hello"))
    file = io.BytesIO()
    torch.save({"model": torch.nn.Linear(2, 2)}, file)
    file.seek(0)
    with pytest.raises(FileFormatError, match=r"refers to torch\.nn\.modules\.linear\.Linear"):
        dl.load(file, weights_only=False)
    file = io.BytesIO()
    torch.save({"x": torch.zeros(3, dtype=torch.uint16)}, file)
    file.seek(0)
    with pytest.raises(FileFormatError, match="a tensor of uint16"):
        dl.load(file)


# save_weights and load_weights


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".ckpt", ".bin"])
def test_weights_are_written_as_the_name_says(tmp_path: Path, suffix: str) -> None:
    arrays = {"w": random((3, 5)).T, "n": np.asarray(np.int64(7))}
    path = tmp_path / f"m{suffix}"
    dl.io.save_weights(path, arrays)
    theirs = torch.load(path, weights_only=True)
    ours = dl.io.load_weights(path)
    for name, array in arrays.items():
        np.testing.assert_array_equal(theirs[name].numpy(), array, strict=True)
        np.testing.assert_array_equal(ours[name], array, strict=True)
    with pytest.raises(DTypeError):
        dl.io.save_weights(path, {"w": np.zeros(3, np.uint16)})


def test_the_rest_of_a_checkpoint_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.pth"
    dl.save({"model": {"w": dl.arange(3)}, "ema": {"w": dl.arange(4)}, "epoch": 3}, path)
    with caplog.at_level(logging.WARNING, "dl4all"):
        assert dl.io.load_weights(path)["w"].size == 3
    assert "read 'model' of this checkpoint, not ema, epoch; key='...' picks another entry" in caplog.text
    caplog.clear()
    assert dl.io.load_weights(path, key="ema")["w"].size == 4
    assert not caplog.text
    with pytest.raises(FileFormatError, match="no state dict under 'opt'; its 3 keys: model, ema, epoch"):
        dl.io.load_weights(path, key="opt")
