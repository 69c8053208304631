"""Push constants are packed and read by name, and are those of the shaders."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from dl4all.errors import ShaderError, TooLargeError
from dl4all.ops import all_shaders
from dl4all.ops.conv.slots import SUM
from dl4all.ops.core.kernels.launch import pack
from dl4all.ops.core.kernels.push_block import PushBlock, push_constants
from dl4all.ops.core.op import OPTIONAL_SHADERS
from dl4all.runtime import spirv
from dl4all.runtime.spirv import PUSH_CONSTANTS, SHADERS, Shader, declared_constants
from dl4all.scheduler.device.programs import Launch

OTHERS = {
    "elementwise/unary.comp", "elementwise/binary.comp", "elementwise/ternary.comp",  # as the expression's
    "memory/copy_words.comp", "memory/fill_words.comp",  # a backend's own
}  # fmt: skip


def test_every_shader_has_its_push_constants_declared() -> None:
    """In the first place: loading compares them with the SPIR-V."""
    missing = set()
    for shader in set(all_shaders()) - set(OPTIONAL_SHADERS):
        if spirv.load(shader).interface.push and not declared_constants(shader):
            missing.add(shader.path)
    assert missing == OTHERS


def shaders_with(folder: Path, old: str, new: str) -> Path:
    """A copy of the shaders in which conv/sum.comp has other push constants."""
    root = folder / "shaders"
    shutil.copytree(SHADERS, root, ignore=shutil.ignore_patterns("spirv", "*.py"))
    file = root / SUM.path
    source = file.read_text("utf-8")
    assert old in source
    file.write_text(source.replace(old, new), "utf-8")
    return root


@pytest.mark.parametrize(
    ("old", "new", "position", "declared", "found"),
    [
        ("slots, y_offset, step;", "y_offset, slots, step;", 1, "uint slots", "uint y_offset"),
        ("slots, y_offset, step;", "slots; int y_offset; uint step;", 2, "uint y_offset", "int y_offset"),
    ],
)  # fmt: skip
def test_other_push_constants_are_refused(
    tmp_path: Path, old: str, new: str, position: int, declared: str, found: str
) -> None:
    root = shaders_with(tmp_path, old, new)
    message = f"push constant {position} is declared as '{declared}' and is '{found}' in the shader"
    with pytest.raises(ShaderError, match=re.escape(message)):
        spirv.load(SUM, root)
    with pytest.raises(ShaderError, match=re.escape(message)):
        spirv.build([SUM], tmp_path / "spirv", root)


def test_push_constants_that_are_missing_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    declared = PushBlock((), "uint n, slots, y_offset, step, more;")
    monkeypatch.setitem(PUSH_CONSTANTS, SUM.path, [declared])
    with pytest.raises(ShaderError, match="'uint more' and is 'missing'"):
        spirv.load(SUM, shaders_with(tmp_path, "step;", "step; "))


BLOCK = PushBlock((), "uint n; uvec2 key; float scale; uint sizes[2], last[1]; int shift;")


def test_values_by_name() -> None:
    push = BLOCK.pack(7, 1, 2, 0.5, sizes_0=3, sizes_1=4, last=5, shift=-6)
    assert push == pack(7, 1, 2, 0.5, 3, 4, 5, -6)
    assert BLOCK.read(push + b"rest") == (7, 1, 2, 0.5, 3, 4, 5, -6)
    assert BLOCK.read(push).shift == -6
    assert BLOCK.after(push[:16], 3, sizes_1=4, last=5, shift=-6) == push
    assert BLOCK.offset("sizes_1") == 20
    assert BLOCK.size == len(push)


def test_wrong_names_and_numbers() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'shift'"):
        BLOCK.pack(7, 1, 2, 0.5, 3, 4, 5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        BLOCK.pack(7, 1, 2, 0.5, 3, 4, 5, size=6)
    with pytest.raises(
        TypeError, match=r"expected push constants \('last', 'shift'\), got 1 and \('size',\)"
    ):
        BLOCK.after(bytes(24), 5, size=6)
    with pytest.raises(TypeError, match=r"got 3 and \(\)"):
        BLOCK.after(bytes(24), 5, 6, 7)
    with pytest.raises(TooLargeError):
        BLOCK.pack(2**32, 1, 2, 0.5, 3, 4, 5, -6)


def test_a_launch_has_the_push_constants_of_its_macros() -> None:
    path = "test_push_block.comp"
    PushBlock(path, "uint n;")
    PushBlock(path, "uint n, bias;", BIAS=1)
    launches = [
        Launch(Shader(path).with_macros({"BIAS": bias}), (1, 1, 1), pack(*range(3, 4 + bias)))
        for bias in (0, 1)
    ]
    assert [push_constants(launch)._asdict() for launch in launches] == [{"n": 3}, {"n": 3, "bias": 4}]
    with pytest.raises(ValueError, match="empty"):
        push_constants(Launch(Shader("other.comp"), (1, 1, 1), b""))
