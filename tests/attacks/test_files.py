"""Weight files and checkpoints that were damaged at random, that lie, or that grow when they are read."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dl4all.errors import FileFormatError
from dl4all.io import load_checkpoint, load_weights, save_checkpoint, save_weights
from tests.conftest import REPOSITORY
from tests.support.mutations import mutate
from tests.support.subcases import FULL, each
from tests.support.torch_files import LEGACY, ZIP, emit, stored, tensor, write

FILES = 32_000 if FULL else 300
MOST_BYTES = 1 << 20  # of all arrays that a damaged file of 2 kB may give


def state(container: str) -> bytes:
    """The pickle of a state dict with views of one storage, an expanded one among them."""
    whole = stored(container)
    views = {
        "layer.weight": tensor(whole, 0, (2, 3), (3, 1)),
        "layer.bias": tensor(whole, 3, (3,), (1,)),
        "mask": tensor(whole, 1, (4, 2), (0, 1)),
    }
    return emit({"epoch": 3, "state_dict": views, "names": ["a", "b"]})


def safetensors_file(path: Path) -> bytes:
    save_weights(
        path, {"w": np.arange(6.0).reshape(2, 3), "b": np.arange(3, dtype="i4"), "e": np.zeros((0, 2))}
    )
    return path.read_bytes()


def damaged_files(path: Path) -> Iterator[Callable[[np.random.Generator], bytes]]:
    """Ways to make damaged files, each from a good one."""
    whole = {container: write(path, container, state(container)).read_bytes() for container in (ZIP, LEGACY)}
    tensors = safetensors_file(path)
    length = int.from_bytes(tensors[:8], "little")
    header, data = tensors[8 : 8 + length], tensors[8 + length :]

    def around(container: str) -> Callable[[np.random.Generator], bytes]:
        return lambda seeded: write(path, container, mutate(state(container), seeded)).read_bytes()

    def with_header(seeded: np.random.Generator) -> bytes:
        other = mutate(header, seeded)
        return struct.pack("<Q", len(other)) + other + data

    yield lambda seeded: mutate(whole[ZIP], seeded)
    yield lambda seeded: mutate(whole[LEGACY], seeded)
    yield around(ZIP)  # whose checksums are right
    yield around(LEGACY)
    yield lambda seeded: mutate(tensors, seeded)
    yield with_header


@pytest.mark.usefixtures("deadline" if not FULL else "tmp_path")
def test_damaged_weight_files_are_refused_or_read(tmp_path: Path) -> None:
    """Nothing else is raised, and no file of some bytes gives more than a megabyte."""
    seeded = np.random.default_rng(16)
    path = tmp_path / "weights.pth"
    ways = list(damaged_files(path))
    refused = loaded = 0
    for number in range(FILES):
        content = ways[number % len(ways)](seeded)
        path.write_bytes(content)
        try:
            arrays = load_weights(path)
        except FileFormatError as error:
            message = str(error)
            refused += 1
        else:
            message = ""
            loaded += 1
            assert sum(array.nbytes for array in arrays.values()) <= MOST_BYTES
            for array in arrays.values():
                array[...] = 1  # writable, whatever the file said
        assert message.isprintable()
        assert len(message) < len(str(path)) + 600
    assert refused > 0.5 * FILES
    assert loaded > 0.005 * FILES  # the damage is small enough for the readers to come far


def forge(step: Path, name: str, content: bytes) -> None:
    """Put a file into a checkpoint, under a digest that is right."""
    (step / name).write_bytes(content)
    manifest = json.loads((step / "manifest.json").read_text())
    manifest["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    (step / "manifest.json").write_text(json.dumps(manifest))


def two_checkpoints(folder: Path) -> Path:
    """Save two, and return the newer one's folder."""
    for step in (1, 2):
        save_checkpoint(folder, step, {"step": step, "weights": {"w": np.full(3, float(step))}})
    return folder / "step-00000002"


def test_damaged_checkpoints_give_way_to_the_one_before(tmp_path: Path) -> None:
    """Under a right digest, too: then the newer one may also be read."""
    newer = two_checkpoints(tmp_path)
    seeded = np.random.default_rng(17)
    good = {
        name: (newer / name).read_bytes() for name in ("state.json", "state.safetensors", "manifest.json")
    }
    older = 0
    for number in range(FILES // 5):
        name = ("state.json", "manifest.json", "state.safetensors")[number % 3]
        for other, content in good.items():
            (newer / other).write_bytes(content)
        damaged = mutate(good[name], seeded)
        if name == "manifest.json":
            (newer / name).write_bytes(damaged)
        else:
            forge(newer, name, damaged)
        found = load_checkpoint(tmp_path)
        assert isinstance(found, dict)
        older += found.get("step") == 1
    assert older > FILES // 10


LIES: dict[str, tuple[str, bytes]] = {
    "deep state": ("state.json", b"[" * 100_000),
    "deep whole state": ("state.json", b"[" * 100_000 + b"]" * 100_000),
    "deep dicts": ("state.json", b'{"$dict": [["1", ' * 50_000 + b"1" + b"]]}" * 50_000),
    "deep manifest": ("manifest.json", b'{"a":' * 100_000),
    "deep header": ("state.safetensors", struct.pack("<Q", 100_000) + b'{"":' * 25_000),
    "no state": ("state.json", b"3"),
    "a list": ("state.json", b"[1, 2]"),
    "an array of no name": ("state.json", b'{"$array": []}'),
    "another array": ("state.json", b'{"$dict": [["\\"w\\"", {"$array": "state.v"}]]}'),
    "a key that is a list": ("state.json", b'{"$dict": [["[1]", 2]]}'),
    "a key that is deep": ("state.json", json.dumps({"$dict": [["[" * 100_000, 1]]}).encode()),
    "many digits": ("state.json", b"1" * 10_000),
    "no text": ("state.json", b"\xff\xfe{}"),
    "nothing": ("manifest.json", b""),
    "a list for a manifest": ("manifest.json", b"[]"),
}


@each("name", LIES)
def test_forged_checkpoints_give_way_to_the_one_before(tmp_path: Path, name: str) -> None:
    newer = two_checkpoints(tmp_path)
    file, content = LIES[name]
    if file == "manifest.json":
        (newer / file).write_bytes(content)
    else:
        forge(newer, file, content)
    assert load_checkpoint(tmp_path)["step"] == 1
    with pytest.raises(FileFormatError, match=r"step-00000002"):
        load_checkpoint(newer)


def bombs(size: int) -> dict[str, bytes]:
    """Pickles of so many bytes whose opcodes each make an object."""
    return {
        "dicts": b"}" * size,
        "lists": b"]" * size,
        "tuples": b")" + b"\x85" * size,
        "marks": b"(" * size,
        "copies": b"Nq\x00" + b"h\x00" * (size // 2),
        "entries": b"}(" + b"K\x01K\x02" * (size // 4) + b"u",
    }


def safetensors_bombs(size: int) -> dict[str, bytes]:
    """Headers of about so many bytes: tensors without a byte, descriptions, and shapes of many axes."""
    entry = '"{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
    count = size // len(entry)
    texts = {
        "tensors": "{" + ",".join(entry.format(i) for i in range(count)) + "}",
        "descriptions": '{"__metadata__":{' + ",".join(f'"{i}":""' for i in range(size // 9)) + "}}",
        "axes": '{"w":{"dtype":"U8","shape":[0' + ",1" * (size // 2) + '],"data_offsets":[0,0]}}',
    }
    return {name: struct.pack("<Q", len(text)) + text.encode() for name, text in texts.items()}


def test_bombs_are_refused_before_they_grow(tmp_path: Path) -> None:
    """Here with a low limit, so that it takes no time; the long form below has the usual one."""
    path = tmp_path / "bomb"
    for body in bombs(60_000).values():
        for container in (ZIP, LEGACY):
            write(path, container, body)
            with pytest.raises(FileFormatError, match=r"raise max_tensors of load_weights$"):
                load_weights(path, max_tensors=100)
    for content in safetensors_bombs(200_000).values():
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match="raise max_tensors"):
            load_weights(path, max_tensors=100)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02}.")
        for number in range(600):
            archive.writestr(f"a/{number:02000}", b"")
    with pytest.raises(FileFormatError, match="an archive's directory of more than 1074176 bytes"):
        load_weights(path, max_tensors=100)
    assert load_weights(path) == {}


def test_as_many_tensors_as_the_caller_allows(tmp_path: Path) -> None:
    path = tmp_path / "many"
    tensors = {f"layer.{i}.weight": tensor(stored(ZIP), 0, (2, 3), (3, 1)) for i in range(600)}
    for container in (ZIP, LEGACY):
        write(path, container, emit({n: tensor(stored(container), 0, (2, 3), (3, 1)) for n in tensors}))
        assert len(load_weights(path)) == len(load_weights(path, max_tensors=600)) == 600
        with pytest.raises(FileFormatError, match="the limit is 100 tensors"):
            load_weights(path, max_tensors=100)
    save_weights(path, {name: np.ones((2, 3), np.float32) for name in tensors})
    assert len(load_weights(path, max_tensors=600)) == 600
    with pytest.raises(FileFormatError, match="the limit is 100 tensors"):
        load_weights(path, max_tensors=100)


@pytest.mark.parametrize("container", [ZIP, LEGACY])
def test_expanded_tensors_are_copies_within_a_limit(tmp_path: Path, container: str) -> None:
    path = tmp_path / "expanded.pth"

    def views(**shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Path:
        tensors = {name: tensor(stored(container), 0, *shape) for name, shape in shapes.items()}
        return write(path, container, emit(tensors))

    loaded = load_weights(
        views(w=((5, 2), (0, 1)), v=((6,), (1,)), windows=((5, 2), (1, 1)), t=((3, 2), (1, 3)))
    )
    assert loaded["w"].tolist() == [[0, 1]] * 5
    assert loaded["windows"].tolist() == [[i, i + 1] for i in range(5)]
    assert not np.shares_memory(loaded["w"], loaded["v"])
    assert np.shares_memory(loaded["t"], loaded["v"])
    loaded["w"][0, 0] = 7
    assert loaded["w"].tolist() == [[7, 1], *[[0, 1]] * 4]
    for shape in ((1 << 47,), (1 << 25,)):
        with pytest.raises(FileFormatError, match=r"expanded tensors of more than 64 MiB, w of"):
            load_weights(views(w=(shape, (0,))))
    # Each is small enough, all together are not.
    with pytest.raises(FileFormatError, match=r"expanded tensors of more than 64 MiB"):
        load_weights(views(**{f"w{i}": ((1 << 22,), (0,)) for i in range(5)}))


MEASURE = """
import sys
from dl4all.io import load_weights
for path in sys.argv[1:]:
    try:
        load_weights(path)
    except ValueError as error:
        print(str(error)[:60])
status = open("/proc/self/status").read()  # getrusage counts what the parent had when it forked
print(int(status.split("VmHWM:")[1].split()[0]) >> 10)
"""


@pytest.mark.full
def test_large_bombs_take_little_memory(tmp_path: Path) -> None:
    """Without limits, 16 MiB of opcodes take 1.4 GiB, and a header of 83 MiB 2 GiB."""
    paths = []
    for name, body in bombs((16 << 20) - 64).items():
        paths.append(write(tmp_path / name, ZIP, body))
    for size in (2, 24, 83):  # the header of a file may have 25 MiB
        for name, content in safetensors_bombs(size << 20).items():
            paths.append(tmp_path / f"{size} {name}.safetensors")
            paths[-1].write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, paths)],
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    *errors, peak = done.stdout.splitlines()
    assert len(errors) >= len(paths) - 2  # the smallest may be within the limits
    assert int(peak) < 400
