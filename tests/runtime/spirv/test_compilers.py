"""libshaderc, glslc and glslangValidator: equal interfaces, and errors that say where."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from dl4all.errors import BackendMissingError, ConfigError, ShaderError
from dl4all.runtime.spirv import compilers
from dl4all.runtime.spirv.compilers import glslc, shaderc
from dl4all.runtime.spirv.compilers.source import Source
from dl4all.runtime.spirv.reflect import reflect

HEADER = "#version 450\n#extension GL_GOOGLE_include_directive : require\n"
OP = ("OP(x)", "x >= 0.0 ? x : p.factor * x")


def compile_with(name: str) -> compilers.Compile:
    """A compiler's compile function, or skip the test where it is not installed."""
    find, compile = compilers.FOUND_BY[name]
    if find() is None:
        pytest.skip(f"{name} cannot be used here: {'; '.join(shaderc.load_errors()) or 'not installed'}")
    return compile


@pytest.fixture(params=list(compilers.FOUND_BY))
def compile(request: pytest.FixtureRequest) -> compilers.Compile:
    """Each compiler in turn."""
    return compile_with(request.param)


@pytest.fixture
def error(compile: compilers.Compile, root: Path) -> Callable[[str], str]:
    """What the compiler says about a source."""

    def message(source: str) -> str:
        (root / "op").mkdir()
        (root / "op" / "wrong.comp").write_text(HEADER + source)
        with pytest.raises(ShaderError) as caught:
            compile(root / "op" / "wrong.comp", [], [root / "include"])
        return str(caught.value)

    return message


def test_defines_and_includes_reach_the_source(compile: compilers.Compile, root: Path) -> None:
    code = compile(root / "scale.comp", [OP], [root / "include"])
    assert reflect(code).push_bytes == 8
    with pytest.raises(ShaderError, match="OP"):
        compile(root / "scale.comp", [], [root / "include"])
    with pytest.raises(ShaderError, match=r"types\.glsl"):
        compile(root / "scale.comp", [OP], [])


def test_the_target_is_spirv_1_3(compile: compilers.Compile, root: Path) -> None:
    code = compile(root / "scale.comp", [OP], [root / "include"])
    assert int.from_bytes(code[4:8], "little") == 0x010300


def test_what_is_declared_is_kept_even_unused(compile: compilers.Compile, root: Path) -> None:
    """The interface is checked against what an op declares, not against what its code happens to use."""
    unused = "layout(constant_id = 7) const uint SEVEN = 7; layout(binding = 2) buffer Z { float z[]; };\n"
    (root / "more.comp").write_text((root / "scale.comp").read_text() + unused)
    got = reflect(compile(root / "more.comp", [OP], [root / "include"]))
    plain = reflect(compile(root / "scale.comp", [OP], [root / "include"]))
    assert got.spec_ids == (*plain.spec_ids, 7)
    assert [b.index for b in got.bindings] == [*(b.index for b in plain.bindings), 2]


def test_an_include_beside_the_includer_comes_first(compile: compilers.Compile, root: Path) -> None:
    (root / "op").mkdir()
    (root / "op" / "types.glsl").write_text('#define T float\n#include "more.glsl"\n')
    (root / "op" / "more.glsl").write_text("layout(constant_id = 7) const uint SEVEN = 7;\n")
    body = (root / "scale.comp").read_text().replace("i < p.n", "i < SEVEN")
    (root / "op" / "scale.comp").write_text(body)
    code = compile(root / "op" / "scale.comp", [OP], [root / "include"])
    assert reflect(code).spec_ids == (0, 7)


def test_an_error_names_file_line_and_word(error: Callable[[str], str], root: Path) -> None:
    said = error("void main() {\n    float x = alfa;\n}\n")
    assert f"{root / 'op' / 'wrong.comp'}:4: error: 'alfa' : undeclared identifier" in said


def test_an_error_in_an_include_names_the_include(error: Callable[[str], str], root: Path) -> None:
    (root / "include" / "bad.glsl").write_text("// one\n// two\nfloat f() { return beta; }\n")
    said = error('#include "bad.glsl"\nvoid main() { gamma = 1; }\n')
    # glslangValidator may give up at the first error.
    assert f"{root / 'include' / 'bad.glsl'}:3: error: 'beta'" in said


def test_a_missing_include_is_named(error: Callable[[str], str], root: Path) -> None:
    said = error('#include "nowhere.glsl"\nvoid main() {}\n')
    assert f"{root / 'op' / 'wrong.comp'}:3: error" in said
    assert "nowhere.glsl" in said


def test_a_circle_of_includes_is_an_error(error: Callable[[str], str], root: Path) -> None:
    (root / "include" / "a.glsl").write_text('#include "b.glsl"\n')
    (root / "include" / "b.glsl").write_text('#include "a.glsl"\n')
    assert "circle" in error('#include "a.glsl"\nvoid main() {}\n')


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(compilers.FOUND_BY, 2)))
def test_compilers_give_equal_interfaces(one: str, other: str, root: Path) -> None:
    first, second = (
        reflect(compile_with(name)(root / "scale.comp", [OP], [root / "include"])) for name in (one, other)
    )
    assert first == second


def test_many_by_one_process_are_the_same_modules(root: Path) -> None:
    compile = compile_with("glslc")
    text = (root / "scale.comp").read_text()
    macros = [[OP], [("OP(x)", "-x")], [("OP(x)", "")], [], [("OP(x)", "SIGN exp(x)"), ("SIGN", "-")]]
    made = glslc.compile_all([Source(text, some) for some in macros], [root / "include"])
    assert made[2:4] == [None, None]
    alone = [compile(root / "scale.comp", macros[i], [root / "include"]) for i in (0, 1, 4)]
    assert [made[i] for i in (0, 1, 4)] == alone
    assert len(set(alone)) == 3


@pytest.mark.parametrize("name", list(compilers.FOUND_BY))
def test_one_compiler_can_be_forced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile = compile_with(name)
    monkeypatch.setenv("DL4ALL_SHADER_COMPILER", name)
    assert compilers.pick().compile is compile
    assert compilers.pick().identity.startswith(name)


def test_the_first_that_is_installed_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile(*_: object) -> bytes:
        return b""

    monkeypatch.delenv("DL4ALL_SHADER_COMPILER", raising=False)
    monkeypatch.setitem(compilers.FOUND_BY, "shaderc", (lambda: None, compile))
    monkeypatch.setitem(compilers.FOUND_BY, "glslc", (lambda: "glslc 1", compile))
    assert compilers.pick().identity == "glslc 1"
    monkeypatch.setitem(compilers.FOUND_BY, "shaderc", (lambda: "shaderc 1", compile))
    assert compilers.pick().identity == "shaderc 1"


def test_forcing_an_unknown_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_SHADER_COMPILER", "dxc")
    with pytest.raises(ConfigError, match="'dxc'; it can be shaderc, glslc, glslangValidator"):
        compilers.pick()


def test_without_any_compiler_the_error_names_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_SHADER_COMPILER", "glslc")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendMissingError, match=r"apt install glslc.*glslang-tools.*dnf.*pacman.*brew"):
        compilers.pick()


def test_without_any_compiler_the_error_says_what_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> bytes:
        raise AssertionError("not installed, so not called")

    monkeypatch.delenv("DL4ALL_SHADER_COMPILER", raising=False)
    monkeypatch.setattr(
        compilers, "FOUND_BY", {"shaderc": (lambda: None, absent), "glslc": (lambda: None, absent)}
    )
    monkeypatch.setattr(shaderc, "load_errors", lambda: ["libshaderc.so.1: undefined symbol: x"])
    with pytest.raises(
        BackendMissingError, match=r"compiler .*libshaderc\.so\.1: undefined symbol.*apt install"
    ):
        compilers.pick()


def test_a_library_that_does_not_load_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "libshaderc.so.1"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(shaderc, "NAMES", ("libnowhere.so.1", str(broken)))
    (reason,) = shaderc.load_errors()
    assert str(broken) in reason
