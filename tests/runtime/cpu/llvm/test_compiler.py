"""Compiled code is kept on disk, and made anew where what is there is damaged or foreign."""

from __future__ import annotations

import logging
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

from dl4all.runtime.cpu.llvm import target
from dl4all.runtime.cpu.llvm.compiler import FOLDER, HeldFunction, LlvmCompiler
from dl4all.runtime.cpu.llvm.ir import IrModule
from dl4all.runtime.records import file_cache
from tests.conftest import run_python
from tests.support.subcases import FULL

pytestmark = pytest.mark.skipif(target.binding() is None, reason="llvmlite is missing")


def module(number: float) -> str:
    """Writes a number."""
    made = IrModule()
    with made.kernel("number") as code:
        code.store(code.constant("double", number), code.slot(0, "ptr"), 0)
    return made.text


def computed(compiler: LlvmCompiler, number: float) -> float:
    out = np.zeros(1)
    HeldFunction(compiler.functions(module(number), ("number",))["number"])(
        struct.pack("<q", out.ctypes.data)
    )
    return float(out[0])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    return tmp_path / FOLDER


def test_what_was_compiled_is_loaded_next_time(folder: Path) -> None:
    first, second = LlvmCompiler(target.host()), LlvmCompiler(target.host())
    assert computed(first, 1.5) == computed(second, 1.5) == 1.5
    assert (first.compiled, first.loaded, second.compiled, second.loaded) == (1, 0, 0, 1)
    assert len(list(folder.iterdir())) == 1
    assert computed(second, 2.5) == 2.5
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    "damage", ["empty", "cut", "other bytes", "another kernel", "no object code", "a folder"]
)
def test_damaged_and_foreign_files_are_made_anew(folder: Path, damage: str) -> None:
    computed(LlvmCompiler(target.host()), 1.5)
    [file] = folder.iterdir()
    content = file.read_bytes()
    if damage == "empty":
        file.write_bytes(b"")
    elif damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "other bytes":
        file.write_bytes(content[:100] + bytes(len(content) - 100))
    elif damage == "another kernel":  # whole, and with a right digest
        other = IrModule()
        with other.kernel("other"):
            pass
        LlvmCompiler(target.host()).functions(other.text, ("other",))
        [second] = set(folder.iterdir()) - {file}
        file.write_bytes(second.read_bytes())
    elif damage == "no object code":
        file_cache.write(file, b"this is no ELF file")
    else:
        file.unlink()
        file.mkdir()
    compiler = LlvmCompiler(target.host())
    assert computed(compiler, 1.5) == 1.5
    assert (compiler.compiled, compiler.loaded) == (1, 0)


def test_another_processor_has_files_of_its_own(folder: Path) -> None:
    plain = LlvmCompiler(target.described(target.host().name, {}))
    assert computed(plain, 1.5) == computed(LlvmCompiler(target.host()), 1.5) == 1.5
    assert len(list(folder.iterdir())) == 2


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path / "file"))
    with caplog.at_level(logging.DEBUG, "dl4all"):
        assert computed(LlvmCompiler(target.host()), 1.5) == 1.5
    assert "cannot write cache file" in caplog.text


def test_threads_compile_the_same_kernels(folder: Path) -> None:
    results: list[float] = []

    def work() -> None:
        compiler = LlvmCompiler(target.host())
        results.extend(computed(compiler, float(number)) for number in range(10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted([float(number) for number in range(10)] * 4)
    assert len(list(folder.iterdir())) == 10


WIDE = dict.fromkeys(["avx", "fma", "avx512f", "avx512vl", "avx512bw", "avx512dq"], True)


@pytest.mark.parametrize(
    ("flags", "lanes", "registers", "fused", "instructions"),
    [
        ({}, 4, 16, False, "SSE2"),
        ({"avx": True, "avx2": True, "fma": True}, 8, 16, True, "AVX2"),
        ({"avx": True, "fma": False}, 8, 16, False, "AVX"),
        (WIDE, 16, 32, True, "AVX-512"),
        ({"avx": True, "fma": True, "avx512f": True}, 8, 16, True, "AVX2"),
        ({"neon": True}, 4, 32, True, "NEON"),
    ],
)  # fmt: skip
def test_processors(
    flags: dict[str, bool], lanes: int, registers: int, fused: bool, instructions: str
) -> None:
    processor = target.described("any", flags)
    assert (processor.lanes(), processor.registers, processor.fused) == (lanes, registers, fused)
    assert processor.instructions == instructions
    assert processor.lanes(8) == lanes // 2


WITHOUT = """
import sys
sys.modules["llvmlite"] = None
import dl4all as dl
from dl4all.runtime.cpu.llvm import provider
assert not provider.available() and provider.description() == ""
x = dl.rand(5, 7, device="cpu", requires_grad=True)
(x.softmax(-1) * x).sum().backward()
assert x.grad.shape == (5, 7)
print(dl.device("cpu").info.driver)
"""


def test_without_a_compiler_numpy_computes() -> None:
    ended = run_python(WITHOUT, ())
    assert (ended.returncode, ended.stdout) == (0, "NumPy\n"), ended.stderr


def test_switched_off() -> None:
    code = WITHOUT.replace('sys.modules["llvmlite"] = None', "")
    ended = run_python(code, (), DL4ALL_CPU_KERNELS="0")
    assert (ended.returncode, ended.stdout) == (0, "NumPy\n"), ended.stderr


@pytest.mark.parametrize("way", ["guarded", "plain"])
def test_every_op_within_its_memory_and_on_a_plain_processor(way: str) -> None:
    """See tests/support/kernel_sweep.py; all examples in a full run."""
    arguments = [way] if FULL else [way, "some"]
    ended = run_python(f"from tests.support.kernel_sweep import main; main({arguments})")
    assert ended.returncode == 0, ended.stderr[-3000:]
    calls, launches = map(int, ended.stdout.split()[-2:])
    assert launches > calls // 100
