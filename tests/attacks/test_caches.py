"""Files of the cache that were damaged, replaced or signed anew, and a disk that is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import need, run_python


def survives(device: str, folder: Path, *, more: bool) -> None:
    """Each attack gives the right results, and the cache is whole after the next use."""
    need(device)
    code = f"from tests.attacks.damaged_caches import main; main({device!r}, more={more})"
    done = run_python(code, DL4ALL_CACHE_DIR=str(folder / "cache"), DL4ALL_TUNE="0", DL4ALL_TOP="0")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "whole\n"


@pytest.mark.vulkan
def test_a_cache_that_anything_may_have_happened_to(tmp_path: Path) -> None:
    survives("vulkan:0", tmp_path, more=False)


@pytest.mark.full
@pytest.mark.parametrize(
    "device", [pytest.param(f"{name}:0", marks=pytest.mark.vulkan) for name in ("vulkan", "kompute")]
)
def test_more_kernels(device: str, tmp_path: Path) -> None:
    survives(device, tmp_path, more=True)
