"""Shaders that hold floats of 16 bits in place of float32: the same results, and what cannot be rewritten."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dl4all.runtime.spirv import Shader, load
from dl4all.runtime.spirv.reflect import reflect
from dl4all.runtime.spirv.storage_types import NotRewritable, StorageType, rewrite

HEADER = (
    "#version 450\nlayout(local_size_x = 1) in;\nlayout(push_constant) uniform P { uint i; uint c; } p;\n"
)
BODIES = {
    "scalars": ("float x[];", "float y[];", "y[p.i] = x[p.i + 1] * 2.0;"),
    "pairs": ("vec2 x[];", "vec2 y[];", "y[p.i] = x[p.i + 1] + x[p.i].yx;"),
    "fours": ("vec4 x[];", "vec4 y[];", "y[p.i] = x[p.i + 1] * 2.0;"),
    "a component": ("vec4 x[];", "float y[];", "y[p.i] = x[p.i].z;"),
    "any component": ("vec4 x[];", "vec4 y[];", "y[p.i][p.c] = x[p.i][p.c];"),
}


def shader(x: str, y: str, body: str) -> Shader:
    source = (
        f"{HEADER}layout(binding = 0) readonly buffer X {{ {x} }};\n"
        f"layout(binding = 1) writeonly buffer Y {{ {y} }};\nvoid main() {{ {body} }}\n"
    )
    return Shader("test/storage.comp", (), source)


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("element", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", BODIES)
def test_modules_are_valid(name: str, element: str, words: bool, tmp_path: Path) -> None:
    """Kernels run under the validation layers as well, in tests/ops/test_halves.py."""
    plain = shader(*BODIES[name])
    rewritten = load(plain.storing([StorageType(element, words), StorageType(element)]))
    assert rewritten.interface.writes == load(plain).interface.writes
    assert "StorageBuffer16BitAccess" in rewritten.interface.capabilities
    tool = shutil.which("spirv-val")
    if tool is not None:
        (tmp_path / "a.spv").write_bytes(rewritten.code)
        command = [tool, "--target-env", "vulkan1.1", str(tmp_path / "a.spv")]
        assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""


def test_reading_words_needs_no_feature() -> None:
    module = load(shader(*BODIES["fours"]).storing([StorageType("bfloat16", in_words=True), None]))
    assert "StorageBuffer16BitAccess" not in module.interface.capabilities


@pytest.mark.parametrize(
    ("x", "y", "body", "words"),
    [
        ("uint x[];", "float y[];", "y[p.i] = uintBitsToFloat(x[p.i]);", False),
        ("uint first; float x[];", "float y[];", "y[p.i] = x[p.i];", False),
        ("vec3 x[];", "float y[];", "y[p.i] = x[p.i].y;", False),
    ],
)
def test_other_blocks_are_refused(x: str, y: str, body: str, words: bool) -> None:
    with pytest.raises(NotRewritable, match=r"test/storage\.comp .*: binding 0 is no array"):
        load(shader(x, y, body).storing([StorageType("float16", words), None]))


def test_a_store_into_words_is_refused() -> None:
    """Two invocations would write halves of one word."""
    with pytest.raises(NotRewritable, match="a store into words"):
        load(shader(*BODIES["fours"]).storing([None, StorageType("bfloat16", in_words=True)]))


def test_rewriting_changes_nothing_else() -> None:
    """For a binding that the module does not have, all instructions stay."""
    code = load(shader(*BODIES["scalars"])).code
    same = rewrite(code, {7: StorageType("float16", in_words=True)})
    assert reflect(same, "same") == reflect(code, "code")
