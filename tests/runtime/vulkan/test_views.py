"""Views of buffers as texels: the driver compiles a kernel once, whatever their sizes are."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dl4all.runtime.protocols import Span
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.runtime.vulkan.discovery import physical_devices
from tests.conftest import REPOSITORY, need
from tests.runtime.vulkan.scene import after, module, step, words

pytestmark = pytest.mark.vulkan

# A power of two and others, of buffers and of pieces of them; bits 8 to 15 are 0 in the first two.
SIZES = (65536, 3 * 65536, 4096, 65280, 65536 + 1020)


def run_all(folder: Path) -> None:
    """One kernel on pieces of many sizes of buffers of as many."""
    backend = VulkanBackend(0)
    program, x = backend.program(module(folder), ()), words(0)
    for size, piece in itertools.product(SIZES, SIZES):
        source, target = backend.allocate(size), backend.allocate(4096)
        span = Span(source, 0, min(size, piece))
        backend.stream.upload(span, x.view(np.uint8))
        backend.stream.dispatch(step(program, span, Span(target, 0, 4096), 5))
        out = np.full_like(x, 0xDEADBEEF)
        backend.stream.download(Span(target, 0, x.nbytes), out.view(np.uint8))
        np.testing.assert_array_equal(out, after(x, 5))
        source.free()
        target.free()
    backend.close()


def test_llvmpipe_compiles_a_kernel_once(tmp_path: Path) -> None:
    need("vulkan:0")
    if physical_devices()[0].info.driver != "llvmpipe":
        pytest.skip("the number of kernels can be seen on llvmpipe only")
    kept = tmp_path / "kept"
    environment = os.environ | {
        "DL4ALL_CACHE_DIR": str(tmp_path / "cache"),
        "MESA_SHADER_CACHE_DIR": str(kept),
        "MESA_SHADER_CACHE_DISABLE": "false",
        "DL4ALL_VALIDATION": "0",  # without the layer, with which views are as long as their pieces
        "PYTHONPATH": str(REPOSITORY),
    }
    code = f"from pathlib import Path; from {__name__} import run_all; run_all(Path({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
    files = [file for file in kept.rglob("*") if file.is_file() and file.name != "index"]
    assert len(files) == 1, files
