"""What torch.save writes is read exactly, and what is no state dict or is damaged is refused in one line."""

from __future__ import annotations

import io
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl4all.errors import FileFormatError
from dl4all.io import load_torch

torch = pytest.importorskip("torch")

LEGACY = "legacy"
ZIP = "zip"
both_formats = pytest.mark.parametrize("container", [ZIP, LEGACY])

DTYPES = [
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8",
    "uint64", "uint32", "uint16", "uint8", "bool", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip


def save(obj: object, path: Path, container: str, protocol: int = 2) -> Path:
    torch.save(obj, path, _use_new_zipfile_serialization=container == ZIP, pickle_protocol=protocol)
    return path


def expected(tensor: Any) -> np.ndarray[Any, Any]:
    tensor = tensor.detach()
    name = str(tensor.dtype).removeprefix("torch.")
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        words = torch.int16 if name == "bfloat16" else torch.int8
        return np.asarray(tensor.view(words).numpy().view(name))
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array


def assert_same(loaded: dict[str, np.ndarray[Any, Any]], tensors: dict[str, Any]) -> None:
    assert list(loaded) == list(tensors)
    for name, tensor in tensors.items():
        want = expected(tensor)
        assert loaded[name].dtype == want.dtype, name
        assert loaded[name].shape == want.shape, name
        assert loaded[name].tobytes() == want.tobytes(), name


def refusal(path: Path) -> str:
    with pytest.raises(FileFormatError) as caught:
        load_torch(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < len(str(path)) + 600
    return message


# ---- what torch.save writes -------------------------------------------------------------------------


@both_formats
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_is_exact(tmp_path: Path, container: str, dtype: str) -> None:
    seeded = np.random.default_rng(7)
    kind = getattr(torch, dtype)
    random_bits = torch.from_numpy(seeded.integers(0, 256, (5, 7, 8), dtype=np.uint8)).view(torch.uint8)
    values = random_bits > 127 if dtype == "bool" else random_bits.view(kind)
    if values.is_floating_point() and kind.itemsize > 1:
        # NaN payloads are bits too, but widening a signalling one may quiet it.
        values = torch.nan_to_num(values)
    tensors = {"random": values, "scalar": values.flatten()[3], "none": values[:0]}
    assert_same(load_torch(save(tensors, tmp_path / "a.pth", container)), tensors)


@both_formats
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_binary_protocol(tmp_path: Path, container: str, protocol: int) -> None:
    tensors = {"a": torch.randn(3, 4), "é": torch.tensor(3)}
    assert_same(load_torch(save(tensors, tmp_path / "a.pth", container, protocol)), tensors)


@both_formats
def test_views_keep_values_and_share_memory(tmp_path: Path, container: str) -> None:
    base = torch.randn(6, 8)
    tensors = {
        "base": base,
        "tied": base,
        "transposed": base.t(),
        "row": base[4],
        "window": base[1:5:2, 3:7],
        "permuted": torch.randn(2, 3, 4).permute(2, 0, 1),
        "expanded": torch.randn(1, 4).expand(5, 4),
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    }
    loaded = load_torch(save(tensors, tmp_path / "a.pth", container))
    assert_same(loaded, tensors)
    loaded["base"][4, 0] = 42
    assert loaded["tied"][4, 0] == loaded["transposed"][0, 4] == loaded["row"][0] == 42
    loaded["expanded"][0] = 43  # a copy: an element of its own for each
    assert loaded["expanded"][1:].tolist() == tensors["expanded"][1:].tolist()


@both_formats
def test_module_state_dict_with_parameters_and_metadata(tmp_path: Path, container: str) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Linear(8, 2))
    state = model.state_dict(keep_vars=True)
    assert isinstance(state["0.weight"], torch.nn.Parameter)
    assert state["1.num_batches_tracked"].shape == ()
    assert hasattr(state, "_metadata")  # travels as BUILD
    assert_same(load_torch(save(state, tmp_path / "a.pt", container)), dict(state))


@both_formats
@pytest.mark.parametrize("name", ["state_dict", "model"])
def test_checkpoint_with_a_state_dict(tmp_path: Path, container: str, name: str) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    checkpoint = {"epoch": 3, name: model.state_dict(), "optimizer": optimizer.state_dict(), "lr": 0.1}
    assert_same(load_torch(save(checkpoint, tmp_path / "a.pth", container)), model.state_dict())


@both_formats
def test_empty_state_dict(tmp_path: Path, container: str) -> None:
    assert load_torch(save(OrderedDict(), tmp_path / "a.pth", container)) == {}


def test_file_saved_without_checksums(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        save({"a": torch.arange(5)}, tmp_path / "a.pth", ZIP)
    finally:
        torch.serialization.set_crc32_options(True)
    assert load_torch(tmp_path / "a.pth")["a"].tolist() == [0, 1, 2, 3, 4]


# ---- what is no state dict --------------------------------------------------------------------------


@both_formats
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"epoch": 3, "weights": {}}, ["its entry 'epoch' is of type int", "2 keys: epoch, weights"]),
        ({"state_dict": {"a": [1]}, "epoch": 3}, ["the state_dict's entry 'a' is of type list"]),
        ({"model": {"a": None}}, ["the model's entry 'a' is of type NoneType"]),
        ({f"k{i}": 0.5 for i in range(20)}, ["20 keys", "k7, ..."]),
        ([1, 2], ["a list, not a state dict"]),
        (torch.zeros(2), ["single tensor"]),
        ({3: torch.zeros(2)}, ["name is no text"]),
        ({(1, 2): torch.zeros(2)}, ["tuple for a key"]),
        ({"neg": torch.ones(2, dtype=torch.complex64).conj().imag}, ["lazy negation"]),
        ({"complex": torch.ones(2, dtype=torch.complex64)}, ["torch.ComplexFloatStorage", "safetensors"]),
        ({"f8": torch.zeros(2, dtype=torch.float8_e4m3fnuz)}, ["torch.float8_e4m3fnuz"]),
        ({"sparse": torch.eye(2).to_sparse()}, ["_rebuild_sparse_tensor"]),
        (torch.nn.ReLU(), ["torch.nn.modules.activation.ReLU", "state_dict"]),
        ({"step": np.ones(3)}, ["multiarray._reconstruct"]),
    ],
)  # fmt: skip
def test_other_content_is_named(tmp_path: Path, container: str, content: object, words: list[str]) -> None:
    message = refusal(save(content, tmp_path / "a.pth", container))
    for word in words:
        assert word in message


def test_other_zip_archives_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02}.")
        archive.writestr("a/constants.pkl", b"\x80\x02).")
    assert "TorchScript" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert "zip archive" in refusal(path)


# ---- damage -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> dict[str, bytes]:
    """A real state dict in both containers."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 2))
    contents = {}
    for container in (ZIP, LEGACY):
        buffer = io.BytesIO()
        torch.save(model.half().state_dict(), buffer, _use_new_zipfile_serialization=container == ZIP)
        contents[container] = buffer.getvalue()
    return contents


@both_formats
def test_truncated_anywhere(tmp_path: Path, container: str, real: dict[str, bytes]) -> None:
    whole = real[container]
    path = tmp_path / "a.pth"
    for length in sorted({*range(0, len(whole), len(whole) // 300 + 1), *range(len(whole) - 40, len(whole))}):
        path.write_bytes(whole[:length])
        refusal(path)


@both_formats
def test_flipped_bytes(tmp_path: Path, container: str, real: dict[str, bytes]) -> None:
    seeded = np.random.default_rng(2024)
    path = tmp_path / "a.pth"
    refused = 0
    for _ in range(400):
        content = bytearray(real[container])
        for _ in range(seeded.integers(1, 4)):
            content[seeded.integers(len(content))] = seeded.integers(256)
        path.write_bytes(content)
        message = None
        try:
            loaded = load_torch(path)
            assert all(isinstance(array, np.ndarray) for array in loaded.values())
        except FileFormatError as error:
            message = str(error)
        if message is not None:
            refused += 1
            assert message.isprintable()
    assert refused > 100


def test_one_bit_of_a_weight_is_seen(tmp_path: Path) -> None:
    """Where any number could stand: by the archive's checksum."""
    weight = torch.arange(64.0)
    path = save({"w": weight}, tmp_path / "a.pth", "zip")
    content = bytearray(path.read_bytes())
    content[content.index(weight.detach().numpy().tobytes()) + 100] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"the checksum of .* does not match"):
        load_torch(path)
