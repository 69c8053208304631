"""Shaders whose text was generated: found as others are, and written where DL4ALL_DUMP says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dl4all.errors import BackendMissingError, ConfigError, ShaderError
from dl4all.runtime import spirv
from dl4all.runtime.bounded_dict import BoundedDict
from dl4all.runtime.spirv import Shader, compilers, load
from dl4all.runtime.spirv.texel_buffers import read_as_texels

SOURCE = """#version 450
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { T x[]; };
layout(binding = 1) writeonly buffer Y { T y[]; };
void main() { y[gl_GlobalInvocationID.x] = 2 * x[gl_GlobalInvocationID.x]; }
"""
DOUBLE = Shader("generated/double.comp", source=SOURCE)


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start with nothing in memory, and skip where nothing can be compiled."""
    monkeypatch.setattr(spirv, "_loaded", {})
    monkeypatch.delenv("DL4ALL_DUMP", raising=False)
    try:
        compilers.pick()
    except BackendMissingError as error:
        pytest.skip(str(error))


def no_compiler() -> compilers.Compiler:
    """Stands in for compilers.pick() on a machine that has none."""
    raise BackendMissingError("no compiler")


def test_the_text_is_compiled_with_the_includes(root: Path) -> None:
    module = load(DOUBLE, root)
    assert module.interface.writes == (False, True)
    assert load(DOUBLE, root) is module
    assert read_as_texels(module.code, module.interface) is not None


def test_another_text_is_another_module(root: Path) -> None:
    other = replace(DOUBLE, source=SOURCE.replace("2 *", "3 *"))
    assert other != DOUBLE
    assert load(other, root).code != load(DOUBLE, root).code


def test_an_edited_include_is_compiled(root: Path) -> None:
    before = load(DOUBLE, root).code
    (root / "include" / "types.glsl").write_text("#define T int\n")
    spirv._loaded.clear()
    assert load(DOUBLE, root).code != before


def test_the_cache_needs_no_compiler(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = load(DOUBLE, root).code
    spirv._loaded.clear()
    monkeypatch.setattr(compilers, "pick", no_compiler)
    assert load(DOUBLE, root).code == code
    with pytest.raises(BackendMissingError):
        load(replace(DOUBLE, source=SOURCE.replace("2 *", "3 *")), root)


def test_an_error_names_the_shader(root: Path) -> None:
    with pytest.raises(ShaderError, match=r"generated/double\.comp does not compile(.|\n)*double\.comp:7"):
        load(replace(DOUBLE, source=SOURCE.replace("2 *", "two *")), root)


def test_memory_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spirv, "_loaded", BoundedDict[tuple[Path, Shader], spirv.SpirvModule](2))
    for factor in range(3, 7):
        load(replace(DOUBLE, source=SOURCE.replace("2 *", f"{factor} *")), root)
    assert len(spirv._loaded) == 2


def test_dump(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dump" / "here"
    monkeypatch.setenv("DL4ALL_DUMP", str(folder))
    load(DOUBLE, root)
    load(Shader("scale.comp", (("OP(x)", "-x"),)), root)  # not generated
    assert [file.name for file in folder.iterdir()] == ["double.comp"]
    assert (folder / "double.comp").read_text() == SOURCE
    spirv._loaded.clear()
    load(DOUBLE, root)
    load(replace(DOUBLE, source=SOURCE.replace("2 *", "3 *")), root)
    texts = {file.read_text() for file in folder.iterdir()}
    assert texts == {SOURCE, SOURCE.replace("2 *", "3 *")}


def test_a_dump_that_cannot_be_written_says_so(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DL4ALL_DUMP", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"^DL4ALL_DUMP: cannot write to"):
        load(DOUBLE, root)
