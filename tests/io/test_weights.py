"""Weight files by content: safetensors in and out, PyTorch in, everything else refused in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dl4all.errors import ArgumentError, DTypeError, FileFormatError
from dl4all.io import load_weights, save_weights

DTYPES = [
    "float64", "float32", "float16", "int64", "int32", "int16", "int8",
    "uint64", "uint32", "uint16", "uint8", "bool",
]  # fmt: skip


def refusal(path: Path) -> str:
    with pytest.raises(FileFormatError) as caught:
        load_weights(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def sample() -> dict[str, np.ndarray[Any, Any]]:
    """One array of each element type, in shapes and layouts that go wrong easily."""
    seeded = np.random.default_rng(3)
    arrays = {dtype: (seeded.standard_normal((3, 5)) * 9).astype(dtype) for dtype in DTYPES}
    square = seeded.standard_normal((4, 4, 2)).astype(np.float32)
    return arrays | {
        "scalar": np.asarray(np.int64(-7)),
        "empty": np.zeros((0, 4), np.float16),
        "transposed": square.transpose(2, 0, 1),
        "every other, reversed": square[::-2, 1:],
        "broadcast": np.broadcast_to(square[0, 0], (3, 2)),
        "fortran": np.asfortranarray(square),
        "big endian": square.astype(">f4"),
        "naïve.名前": square[0],
    }


def assert_same(loaded: dict[str, np.ndarray[Any, Any]], arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    assert set(loaded) == set(arrays)
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype.newbyteorder("="), name
        np.testing.assert_array_equal(loaded[name], array, err_msg=name, strict=False)
        assert loaded[name].shape == array.shape, name


# ---- in and out -------------------------------------------------------------------------------------


def test_round_trip(tmp_path: Path) -> None:
    arrays = sample()
    save_weights(tmp_path / "a.safetensors", arrays)
    loaded = load_weights(tmp_path / "a.safetensors")
    assert_same(loaded, arrays)
    assert all(array.flags.writeable and array.flags.c_contiguous for array in loaded.values())


def test_the_package_reads_what_we_write_and_the_reverse(tmp_path: Path) -> None:
    arrays = sample()
    save_weights(tmp_path / "ours", arrays)
    assert_same(load_file(tmp_path / "ours"), arrays)
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items() if array.ndim}
    save_file(plain, tmp_path / "theirs", metadata={"format": "np"})
    assert_same(load_weights(str(tmp_path / "theirs")), plain)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_short_floats_are_kept(tmp_path: Path, name: str, suffix: str) -> None:
    """Bit by bit, through PyTorch's files and our own."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file as load_torch
    from safetensors.torch import save_file as save_torch

    dtype: Any = getattr(torch, name)
    words: Any = torch.int16 if name == "bfloat16" else torch.int8
    everything = torch.arange(1 << 8 * dtype.itemsize, dtype=torch.int32).to(words).view(dtype)
    tensors = {"all": everything.reshape(16, -1), "one": torch.tensor(1.5).to(dtype)}
    theirs, ours = tmp_path / f"theirs{suffix}", tmp_path / f"ours{suffix}"
    (save_torch if suffix == ".safetensors" else torch.save)({**tensors, "f32": torch.ones(3)}, theirs)
    loaded = load_weights(theirs)
    save_weights(ours, loaded)
    again = (load_torch if suffix == ".safetensors" else torch.load)(ours)
    for key, tensor in tensors.items():
        assert loaded[key].dtype == name
        assert loaded[key].shape == tuple(tensor.shape)
        assert loaded[key].tobytes() == tensor.view(words).numpy().tobytes()
        assert again[key].dtype == dtype
        assert torch.equal(again[key].view(words), tensor.view(words))
    assert loaded["f32"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("suffix", [".pth", ".bin", ".safetensors", ""])
def test_content_decides_not_the_suffix(tmp_path: Path, suffix: str) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / f"weights{suffix}"
    save_weights(path, {"w": np.arange(3)})
    assert load_weights(path)["w"].tolist() == [0, 1, 2]
    for new in (True, False):
        torch.save({"w": torch.arange(3)}, path, _use_new_zipfile_serialization=new)
        assert load_weights(path)["w"].tolist() == [0, 1, 2]


def test_torch_is_never_imported(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.arange(3)}, tmp_path / "a.pth")
    code = (
        "import sys, dl4all as dl; dl.io.load_weights(sys.argv[1])\n"
        "dl.save(dl.load(sys.argv[1]), sys.argv[1])\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a.pth"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


# ---- refused ----------------------------------------------------------------------------------------


def test_paths_that_are_no_weight_file(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "absent.pth")
    assert "is a directory" in refusal(tmp_path)
    (tmp_path / "empty.pth").touch()
    assert "is empty" in refusal(tmp_path / "empty.pth")
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refusal(tmp_path / "pipe")  # and does not wait for a writer
    assert "not a regular file" in refusal(Path(os.devnull))


@pytest.mark.parametrize(
    "content",
    [
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n",
        b"<!DOCTYPE html><html>Not found</html>",
        b"\x89HDF\r\n\x1a\n" + bytes(100),
        b"\x80\x02}q\x00.",  # a bare pickle
        b"{",
        bytes(200),
    ],
)
def test_other_formats(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    message = refusal(tmp_path / "a.bin")
    assert "safetensors" in message
    assert ".pth" in message


def header(entries: object, data: bytes = bytes(16)) -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str = "F32", shape: object = (4,), offsets: object = (0, 16)) -> object:
    return {"w": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    "content",
    [
        header(entry(), bytes(15)),
        header(entry(), bytes(17)),
        header(entry(), b""),
        header(entry(shape=(5,))),
        header(entry(shape=(-4,))),
        header(entry(shape=(1 << 62, 1 << 62))),
        header(entry(offsets=(16, 0))),
        header(entry(offsets=(4, 20))),
        header(entry(offsets=(0, 1 << 60)), bytes(16)),
        header(entry(dtype="F128")),
        header({"w": 3}),
        header({"w": {"dtype": "F32"}}),
        header(b"{not json"),
        header(b'{"a": ' * 50_000),
        header(b"{" + b'"\xff": 1}'),
        (1 << 63).to_bytes(8, "little") + b"{}",
        (200).to_bytes(8, "little") + b"{}",
        b"\x01",
    ],
    ids=lambda content: repr(content[8:40]),
)
def test_damaged_safetensors(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    assert "truncated or damaged safetensors file" in refusal(tmp_path / "a.safetensors")


def test_element_types_that_numpy_lacks(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(header(entry(dtype="F8_E8M0", shape=(16,))))
    assert "w in F8_E8M0" in refusal(tmp_path / "a.safetensors")


def test_truncated_and_flipped_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_weights(path, {name: array for name, array in sample().items() if array.ndim == 2})
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        refusal(path)
    seeded = np.random.default_rng(5)
    for _ in range(400):
        content = bytearray(whole)
        content[seeded.integers(len(content) // 2)] = seeded.integers(256)  # mostly the header
        path.write_bytes(content)
        try:
            loaded = load_weights(path)
        except FileFormatError:
            continue
        assert all(isinstance(array, np.ndarray) for array in loaded.values())


# ---- saving -----------------------------------------------------------------------------------------


def test_saving_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_weights(path, {"w": np.zeros(3)})
    save_weights(path, {"v": np.ones(2)})
    assert list(load_weights(path)) == ["v"]
    assert [found.name for found in tmp_path.iterdir()] == ["a.safetensors"]
    (tmp_path / "touched").touch()
    assert path.stat().st_mode == (tmp_path / "touched").stat().st_mode


def test_interrupted_saving_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.safetensors"
    save_weights(path, {"w": np.zeros(3)})
    before = path.read_bytes()

    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_weights(path, {"v": np.ones(200)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_saving_what_the_format_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    for array in (np.zeros(2, complex), np.array(["a"]), np.array([None]), np.zeros(2, "M8[s]")):
        with pytest.raises(DTypeError, match=r"\[save_weights\] w is"):
            save_weights(path, {"w": array})
    for name in ("__metadata__", 3):
        with pytest.raises(ArgumentError, match=r"\[save_weights\]"):
            save_weights(path, {name: np.zeros(2)})  # type: ignore[dict-item]
    with pytest.raises(OSError, match="absent"):
        save_weights(tmp_path / "absent" / "a.safetensors", {"w": np.zeros(2)})
    assert list(tmp_path.iterdir()) == []


def test_a_reader_of_the_old_file_goes_on_reading_it(tmp_path: Path) -> None:
    """The new file takes the old one's place; it is not written into it."""
    file = tmp_path / "weights.safetensors"
    save_weights(file, {"w": np.zeros(3, np.float32)})
    old = file.read_bytes()
    with file.open("rb") as reader:
        save_weights(file, {"w": np.ones(3, np.float32)})
        assert reader.read() == old
    assert file.read_bytes() != old
