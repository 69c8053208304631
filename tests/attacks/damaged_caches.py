"""Damages every file of the cache in one way after the other, and computes as the next process would."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import dl4all as dl
from dl4all.runtime import registry, spirv
from dl4all.runtime.records import file_cache, measurements, speed_records
from dl4all.runtime.records.measurements import Measurement
from dl4all.runtime.work import Speeds
from dl4all.scheduler.device import current
from tests.support.mutations import mutate

SIGNED = b"no module, no pipelines and no record" * 9


def replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Damage that puts something else in place of a file."""

    def damage(file: Path) -> None:
        file.unlink()
        make(file)

    return damage


def moved_out(file: Path) -> None:
    target = file.parents[2] / "elsewhere" / file.name
    target.parent.mkdir(exist_ok=True)
    shutil.move(file, target)
    file.symlink_to(target)


def flipped(file: Path) -> None:
    file.write_bytes(mutate(file.read_bytes(), np.random.default_rng(len(file.name))) + b"x")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda file: file.write_bytes(b""),
    "40 bytes": lambda file: file.write_bytes(file.read_bytes()[:40]),
    "flipped": flipped,
    "signed garbage": lambda file: file_cache.write(file, SIGNED),
    "signed nothing": lambda file: file_cache.write(file, b""),
    "signed brackets": lambda file: file_cache.write(file, b"[" * 100_000),
    "signed numbers": lambda file: file_cache.write(file, signed_numbers(file)),
    "a folder": replaced(Path.mkdir),
    "a pipe": replaced(os.mkfifo),
    "a device": replaced(lambda file: file.symlink_to("/dev/zero")),
    "moved out": moved_out,
    "dangling": replaced(lambda file: file.symlink_to("nowhere")),
    "in itself": replaced(lambda file: file.symlink_to(file)),
}
UNMENDED = ("a folder",)  # nothing that a user has put there is removed


def signed_numbers(file: Path) -> bytes:
    """A record as it is, but with numbers that no float holds."""
    content = file_cache.read(file) or b""
    if file.suffix != ".json":
        return content[::-1]
    record = json.loads(content)
    huge = 10**400
    if "measurement" in record:
        record |= {"unfinished": huge, "measurement": dict.fromkeys(record["measurement"], huge)}
    if "speeds" in record:
        record["speeds"] = {**dict.fromkeys(record["speeds"], huge), "per_flop_of": {"conv": huge}}
    return json.dumps(record).encode()


def restart(name: str) -> None:
    """What a new process does not have in memory goes."""
    spirv._loaded.clear()
    current._devices.pop(name, None)
    registry.close_all()


def compute(name: str, *, more: bool) -> None:
    """What reads and writes each kind of file; fails if a result is wrong."""
    block = np.random.default_rng(0).standard_normal((9, 5), np.float32)
    x = dl.tensor(block, device=name)
    assert np.array_equal(x.relu().numpy(), np.maximum(block, 0))
    if more:
        np.testing.assert_allclose((x @ x.T).numpy(), block @ block.T, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(x.sum(0).numpy(), block.sum(0), rtol=1e-4, atol=1e-5)
    info = registry.describe(name)
    measurement, speeds = measurements.lookup(name, info), speed_records.lookup(name, info)
    assert measurement in (None, Measurement(matmul_gflops=3.0))
    assert speeds in (None, Speeds(launch=1e-6))
    registry.devices()
    measurements.store(name, info, Measurement(matmul_gflops=3.0))
    speed_records.store(name, info, Speeds(launch=1e-6))


def files(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file() and path.name != "lock")


def main(name: str, *, more: bool) -> None:
    """One kernel, or more of them."""
    cache = file_cache.folder()

    def run() -> None:
        compute(name, more=more)
        restart(name)

    run()
    whole = files(cache)
    for kind, damage in DAMAGE.items():
        for file in files(cache):
            damage(file)
        run()
        left = [path.name for path in cache.rglob(".*")]
        assert not left, (kind, left)
        if kind in UNMENDED:
            shutil.rmtree(cache)
            run()
        assert files(cache) == whole, kind
        assert all(file_cache.read(file) not in (None, SIGNED, b"") for file in whole), kind
    for kind, folder in (("no folder", cache), ("no folder within", cache / "spirv")):
        shutil.rmtree(folder)
        folder.write_text("a file")
        run()
        folder.unlink()
        run()
        assert files(cache) == whole, kind
    for most in (0, 10, 2000):  # a disk that is full
        shutil.rmtree(cache)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        run()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert all(file_cache.read(file) for file in files(cache))
    run()
    assert files(cache) == whole
    print("whole")


if __name__ == "__main__":
    main(sys.argv[1], more=True)
