"""That the run with the validation layer can fail, and that the layer is off without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dl4all.testing.conformance.support.kernels import write_shaders
from tests.conftest import need, run_python, write_layer_settings

# Two dependent dispatches, with room for something wrong before and after.
CHAIN = """
import os, pathlib, struct, sys
import numpy as np
from dl4all.runtime import registry, spirv
from dl4all.runtime.protocols import Dispatch, span
from dl4all.runtime.vulkan.stream import VulkanStream

{before}
backend = registry.open_device({device!r})
root = pathlib.Path({shaders!r})
program = backend.program(spirv.load(spirv.Shader("step.comp"), root), ())
x, y = span(backend.allocate(256)), span(backend.allocate(256))
backend.stream.upload(x, np.zeros(256, np.uint8))
push = struct.pack("<II", 64, 1)
backend.stream.dispatch(Dispatch(program, [x, y], (1, 1, 1), push))
backend.stream.dispatch(Dispatch(program, [y, x], (1, 1, 1), push))
out = np.zeros(64, np.uint32)
backend.stream.download(x, out.view(np.uint8))
assert (out == 4).all(), out
{after}
loaded = "khronos_validation" in pathlib.Path("/proc/self/maps").read_text()
print("VK_LOADER_LAYERS_DISABLE" in os.environ, loaded)
"""
NO_ORDER = """
VulkanStream._order = lambda self, reads, writes, alone=False: self._busy.add(reads, writes)
"""
LEAK = "backend.buffers.discard(x.buffer)"
WRONG_USE = """
backend.stream.dispatch(Dispatch(program, [x, y], (1, 1, 1), push))
backend.stream._write.dispatch((2**31, 1, 1))
backend.stream._batch = None
"""


@pytest.fixture
def shaders(tmp_path: Path) -> str:
    """A folder with the conformance suite's kernels."""
    folder = tmp_path / "shaders"
    folder.mkdir()
    write_shaders(folder)
    return str(folder)


def messages_of(
    tmp_path: Path, shaders: str, device: str, before: str = "", after: str = "", **env: str
) -> tuple[str, str]:
    """What the layer writes about the chain, and what the process prints."""
    log = tmp_path / "log.txt"
    write_layer_settings(tmp_path, log)
    code = CHAIN.format(device=device, shaders=shaders, before=before, after=after)
    done = run_python(code, VK_LAYER_SETTINGS_PATH=str(tmp_path), **env)
    if "VK_LAYER_KHRONOS_validation, which is not installed" in done.stderr:
        pytest.skip("the Khronos validation layer is not installed")
    assert done.returncode == 0, done.stderr
    return log.read_text() if log.exists() else "", done.stdout


@pytest.mark.slow
@pytest.mark.vulkan
@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("", "", ""),
        (NO_ORDER, "", "SYNC-HAZARD-READ-AFTER-WRITE"),
        ("", WRONG_USE, "VUID-vkCmdDispatch-groupCountX-00386"),
        ("", LEAK, "VUID-vkDestroyDevice-device-00378"),
    ],
    ids=["right", "no barriers", "wrong use", "leak"],
)
def test_mistakes_are_reported(tmp_path: Path, shaders: str, before: str, after: str, message: str) -> None:
    need("vulkan:0")
    said, _ = messages_of(tmp_path, shaders, "vulkan:0", before, after, DL4ALL_VALIDATION="1")
    assert message in said
    assert bool(said) == bool(message)


@pytest.mark.vulkan
@pytest.mark.parametrize("name", ["vulkan:0", "kompute:0"])
@pytest.mark.parametrize("wanted", ["", "0", "1"])
def test_the_layer_is_on_only_where_it_is_wanted(
    tmp_path: Path, shaders: str, name: str, wanted: str
) -> None:
    """Kompute turns it on whenever it is installed, which makes every call several times slower."""
    need(name)
    _, printed = messages_of(tmp_path, shaders, name, DL4ALL_VALIDATION=wanted)
    disabled, loaded = printed.split()
    assert disabled == "False"  # the variable that keeps it off is set for a moment only
    assert loaded == str(wanted == "1")
    assert (tmp_path / "log.txt").exists() == (wanted == "1")
