"""PyTorch files made by hand: ones that torch.save writes no more, and ones that an attacker writes."""

from __future__ import annotations

import copyreg
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dl4all.errors import FileFormatError
from dl4all.io import load_torch
from tests.support.torch_files import LEGACY, ZIP, Call, Global, Stored, emit, stored, tensor, write

both_formats = pytest.mark.parametrize("container", [ZIP, LEGACY])


def refusal(path: Path) -> str:
    with pytest.raises(FileFormatError) as caught:
        load_torch(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < len(str(path)) + 600
    return message


# ---- old and foreign files ---------------------------------------------------------------------------


def test_big_endian_storages(tmp_path: Path) -> None:
    body = emit({"w": tensor(stored(ZIP), 0, (2, 3), (3, 1))})
    path = write(tmp_path / "a.pth", ZIP, body, {"0": np.arange(6, dtype=">f4").tobytes()})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("archive/byteorder", "big")
    assert load_torch(path)["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_file_of_2017(tmp_path: Path) -> None:
    """Python 2 and torch 0.1: an OrderedDict from pairs, byte strings, Parameters, parts of storages."""
    torch = pytest.importorskip("torch")
    whole = Stored((b"storage", Global("torch.FloatStorage"), b"0", b"cpu", 6, None))
    part = Stored((b"storage", Global("torch.FloatStorage"), b"0", b"cpu", 6, (b"9", 2, 4)))
    weight = Call("torch._utils._rebuild_tensor", (whole, 0, (2, 3), (3, 1)))
    bias = Call("torch._utils._rebuild_tensor", (part, 1, (3,), (1,)))
    no_hooks = Call("collections.OrderedDict", ([],))
    parameter = emit(Call("torch.nn.parameter.Parameter", (weight,))) + emit((True, False, no_hooks)) + b"b"
    pairs = b"](](" + emit(b"w") + parameter + b"e](" + emit(b"b") + emit(bias) + b"ee"
    body = emit(Global("collections.OrderedDict")) + b"(" + pairs + b"tR"
    loaded = load_torch(write(tmp_path / "a.pth", LEGACY, body))
    assert loaded["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert loaded["b"].tolist() == [3, 4, 5]

    # PyTorch agrees about the part of a storage (today's cannot restore a 2017 Parameter's state).
    path = write(tmp_path / "part.pth", LEGACY, emit({b"b": bias}))
    assert torch.load(path, weights_only=False)["b"].tolist() == load_torch(path)["b"].tolist()


# ---- what an attacker writes ------------------------------------------------------------------------


class Reduce:
    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.reduced


class Sneaky:
    def __init__(self, command: str = "") -> None:
        self.command = command

    def __setstate__(self, state: dict[str, str]) -> None:
        os.system(state["command"])


def opcodes(obj: object, protocol: int) -> bytes:
    """The pickle of an object without PROTO and STOP."""
    return pickle.dumps(obj, protocol=protocol)[2:-1]


def attacks(command: str) -> dict[str, tuple[bytes, str]]:
    text = emit(command)
    touch = f"__import__('os').system({command!r})"
    chain = Reduce(getattr, Reduce(__import__, "os"), "system")
    return {
        "reduce": (opcodes(Reduce(os.system, command), 2), f"{os.name}.system"),
        "stack_global": (opcodes(Reduce(os.system, command), 4), f"{os.name}.system"),
        "eval": (opcodes(Reduce(eval, touch), 3), "builtins.eval"),
        "exec": (opcodes({"a": Reduce(exec, touch)}, 4), "builtins.exec"),
        "getattr": (opcodes(chain, 3), "builtins.getattr"),
        "import": (opcodes(Reduce(__import__, "this"), 3), "builtins.__import__"),
        "inst": (b"(" + text + b"ios\nsystem\n", "os.system"),
        "obj": (b"(cos\nsystem\n" + text + b"o", "os.system"),
        "newobj": (b"csubprocess\nPopen\n(" + text + b"t\x81", "subprocess.Popen"),
        "ext": (b"\x82\xf0" + emit((command,)) + b"R", "EXT1 240"),
        "dotted": (emit("torch") + emit("_utils.os.system") + b"\x93" + text + b"\x85R", "_utils.os.system"),
        "torch": (b"ctorch.serialization\nload\n" + emit((command,)) + b"R", "torch.serialization.load"),
        "numpy": (opcodes(np.ones(3), 2), "multiarray._reconstruct"),
        "setstate": (opcodes(Sneaky(command), 2), "Sneaky"),
        "call_a_dtype": (b"ctorch\nfloat32\n" + emit((command,)) + b"R", "calls a"),
        "call_a_string": (text + emit((command,)) + b"R", "calls a str"),
    }  # fmt: skip


@both_formats
@pytest.mark.parametrize("name", list(attacks("true")))
@pytest.mark.parametrize("nested", [False, True], ids=["alone", "inside"])
def test_nothing_runs(tmp_path: Path, container: str, name: str, nested: bool) -> None:
    sentinel = tmp_path / "sentinel"
    body, word = attacks(f"touch {sentinel}")[name]
    copyreg.add_extension("os", "system", 240)
    try:
        # The interpreter's own unpickler would find the function in this cache without asking find_class.
        pickle.loads(b"\x80\x02\x82\xf0.")
        if nested:
            body = b"}(" + emit("state_dict") + body + b"u"
        message = refusal(write(tmp_path / "evil.pth", container, body))
    finally:
        copyreg.remove_extension("os", "system", 240)
    assert word in message
    assert "state_dict" in message  # the remedy
    assert not sentinel.exists()


@pytest.mark.parametrize("name", ["reduce", "stack_global", "eval", "inst", "obj", "setstate"])
def test_the_attacks_are_real(tmp_path: Path, name: str) -> None:
    body, _ = attacks(f"touch {tmp_path / 'sentinel'}")[name]
    pickle.loads(b"\x80\x04" + body + b".")
    assert (tmp_path / "sentinel").exists()


@both_formats
def test_build_changes_nothing(tmp_path: Path, container: str) -> None:
    state = emit({"build": "x", "__class__": "y", "name": "bool", "start": 0, "stop": 1 << 40})
    for target in ("collections.OrderedDict", "torch.FloatStorage", "torch._utils._rebuild_tensor_v2"):
        body = b"}(" + emit("a") + emit(Global(target)) + state + b"bu"
        refusal(write(tmp_path / "a.pth", container, body))
    weight = emit(tensor(stored(container), 0, (6,), (1,))) + state + b"b"
    loaded = load_torch(write(tmp_path / "b.pth", container, b"}(" + emit("w") + weight + b"u"))
    assert loaded["w"].tolist() == [0, 1, 2, 3, 4, 5]


BIG = 1 << 62


@both_formats
@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [
        (0, (7,), (1,)),
        (1, (6,), (1,)),
        (0, (2, 3), (4, 1)),
        (0, (2, 2), (1, 6)),
        (-1, (2,), (1,)),
        (6, (2,), (-1,)),
        (0, (-2,), (1,)),
        (0, (-2, -3), (3, 1)),
        (7, (0,), (1,)),
        (BIG, (1,), (1,)),
        (0, (BIG,), (1,)),
        (0, (2,), (BIG,)),
        (0, (BIG, BIG), (0, 0)),
        (0, (0, BIG), (0, 0)),
        (0, (1 << 600,), (0,)),
        (0, (1,) * 40, (1,) * 40),
        (0, (2, 3), (1,)),
        (0, 6, 1),
        (0, (True,), (1,)),
        (0, (2.0,), (1,)),
        ("0", (2,), (1,)),
        (None, (2,), (1,)),
    ],
)
def test_tensors_stay_inside_their_storage(
    tmp_path: Path, container: str, offset: object, shape: object, strides: object
) -> None:
    refusal(
        write(tmp_path / "a.pth", container, emit({"w": tensor(stored(container), offset, shape, strides)}))
    )


@both_formats
@pytest.mark.parametrize(
    "broken", [None, "text", (), 3, Global("torch.FloatStorage"), Global("torch.float32"), {}]
)
def test_tensor_without_a_storage(tmp_path: Path, container: str, broken: object) -> None:
    refusal(write(tmp_path / "a.pth", container, emit({"w": tensor(broken, 0, (2,), (1,))})))
    refusal(write(tmp_path / "b.pth", container, emit({"w": Stored((broken,))})))
    refusal(
        write(tmp_path / "c.pth", container, emit({"w": Call("torch._utils._rebuild_parameter", (broken,))}))
    )


@both_formats
@pytest.mark.parametrize("numel", [5, 7, -6, 0, 1 << 40, BIG, 1 << 900, True, None, 6.0])
def test_storage_sizes_are_checked_against_the_file(tmp_path: Path, container: str, numel: object) -> None:
    body = emit({"w": tensor(stored(container, numel), 0, (0,), (1,))})
    refusal(write(tmp_path / "a.pth", container, body))


@both_formats
def test_one_storage_with_two_sizes(tmp_path: Path, container: str) -> None:
    tensors = {str(n): tensor(stored(container, n), 0, (3,), (1,)) for n in (6, 3)}
    assert "two ways" in refusal(write(tmp_path / "a.pth", container, emit(tensors)))


@both_formats
def test_missing_storage(tmp_path: Path, container: str) -> None:
    path = write(tmp_path / "a.pth", container, emit({"w": tensor(stored(container), 0, (3,), (1,))}), {})
    assert "data/0" in refusal(path) or "storage 0 of w is missing" in refusal(path)


def test_legacy_part_storages_are_checked(tmp_path: Path) -> None:
    for view in [("9", 3, 4), ("9", -1, 2), ("9", 0, BIG), ("9", 0), 7, ("9", "0", 1)]:
        body = emit({"w": tensor(stored(LEGACY, view=view), 0, (1,), (1,))})
        refusal(write(tmp_path / "a.pth", LEGACY, body))


def test_zip_bombs(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pth"
    count = 50_000_000
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        body = b"\x80\x02" + emit({"w": tensor(stored(ZIP, count), 0, (count,), (1,))}) + b"."
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), body)  # stored, so that the storage is reached
        archive.writestr("archive/data/0", bytes(4 * count))
    assert path.stat().st_size < 1_000_000
    assert "claim more bytes" in refusal(path)

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}." + bytes(10_000_000))
    assert "compressed" in refusal(path)

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + bytes(17 << 20))
    assert "16 MiB" in refusal(path)


def test_entries_that_overlap(tmp_path: Path) -> None:
    """Many directory entries over the same bytes: a small file that would fill the memory."""
    path = tmp_path / "a.pth"
    numel = 100_000
    tensors = {str(i): tensor(stored(ZIP, numel, str(i)), 0, (numel,), (1,)) for i in range(50)}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + emit(tensors) + b".")
        archive.writestr("archive/data/0", bytes(4 * numel))
        first = archive.getinfo("archive/data/0")
        for i in range(1, 50):
            copy = zipfile.ZipInfo(f"archive/data/{i}")
            copy.header_offset, copy.CRC = first.header_offset, first.CRC
            copy.file_size = copy.compress_size = first.file_size
            archive.filelist.append(copy)
    assert "claim more bytes" in refusal(path)


DEEP = 300_000


@pytest.mark.sampled(3)
@both_formats
@pytest.mark.parametrize(
    "body",
    [
        b"]" * DEEP + b"a" * (DEEP - 1),
        b")" + b"\x85" * DEEP,
        b"}" + b")" + b"\x85" * DEEP + b"Ns",  # hashing this key would overflow the C stack
        b"ccollections\nOrderedDict\n])" + b"\x85" * DEEP + b"N\x86a\x85R",
        b")" + b"\x85" * DEEP + b"Q",
        b")" + b"\x85" * DEEP + b"\x85Q",
        b"(" * DEEP,
        b"]q\x00h\x00a",  # a list in itself
        b"}q\x00U\x05modelh\x00s",  # a checkpoint in itself
        b"Nr\xff\xff\xff\x7f",  # a memo index that would allocate gigabytes
        b"X\xff\xff\xff\xff",
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x8b\xff\xff\xff\x7f",
        b"\x96\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"", b"0", b"1", b"t", b"u", b"e", b"s", b"a", b"R", b"Q", b"b", b"h\x07", b"\x93", b"\x94",
        b"\x85", b"(u", b"(e", b"}(NU\x01au", b"](u", b"}(Nu", b"NN\x93", b"\xff", b"I99\n", b"L5L\n",
        b"\x95", b"q", b"c", b"cos", b"c\xff\n\xff\n", b"X\x01\x00\x00\x00\xff", b"Pabc\n", b"\x97", b"\x8f",
        b"NNR", b"N)R", b"U\x05ab",
        b"ccollections\nOrderedDict\nNR", b"ccollections\nOrderedDict\n(NNtR",
        b"ctorch._utils\n_rebuild_tensor_v2\n)R",
    ],
    ids=lambda body: repr(body[:12]),
)  # fmt: skip
def test_nonsense_pickles(tmp_path: Path, container: str, body: bytes) -> None:
    refusal(write(tmp_path / "a.pth", container, body))


def test_messages_stay_on_one_printable_line(tmp_path: Path) -> None:
    name = "\x1b[31m" + "x" * 5000 + "\r"
    for body in (f"cos\n{name}\n".encode(), emit({name: 3}), emit({"a": {name: 1}, name * 2: [name]})):
        assert refusal(write(tmp_path / "a.pth", ZIP, body)).isprintable()
