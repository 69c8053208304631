"""What is told of the machine's processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from dl4all.runtime.cpu import blas, processor

WIDE = "flags\t\t: fpu avx avx2 avx512f avx512dq avx512cd avx512bw avx512vl"
NARROW = "flags\t\t: fpu avx avx2"


@pytest.fixture(
    params=[WIDE, NARROW, "model name\t: a processor", None], ids=["wide", "narrow", "silent", "missing"]
)
def told(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What Linux tells; nothing where the file is missing."""
    file = tmp_path / "cpuinfo"
    if request.param is not None:
        file.write_text(f"processor\t: 0\n{request.param}\n\nprocessor\t: 1\n")
    monkeypatch.setattr(processor, "CPUINFO", file)
    monkeypatch.delenv(processor.MESA_OVERRIDE, raising=False)
    return request.param or ""


def test_flags(told: str) -> None:
    assert processor.flags() == frozenset(told.split()[2:] if told.startswith("flags") else ())


def test_llvmpipe_has_what_the_processor_has_unless_mesa_is_told_otherwise(
    told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = processor.llvmpipe_has_avx512.__wrapped__
    assert has() == (told == WIDE)
    monkeypatch.setenv(processor.MESA_OVERRIDE, "avx")
    assert not has()


def test_wider_kernels_of_openblas_are_named_where_the_processor_has_them(told: str) -> None:
    assert blas.better("Haswell") == (blas.WIDE if told == WIDE else "")
    assert blas.better(blas.WIDE) == ""
