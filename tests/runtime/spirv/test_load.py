"""load() and build(): which of memory, wheel, cache and compiler answers, and what survives damage."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import platformdirs
import pytest

from dl4all import shaders
from dl4all.errors import BackendMissingError, ShaderError
from dl4all.runtime import spirv
from dl4all.runtime.records import file_cache
from dl4all.runtime.spirv import Shader, build, compilers, load, module_store
from dl4all.runtime.spirv.compilers.source import Source
from dl4all.runtime.spirv.storage_types import StorageType
from tests.support.forked_process import ForkedProcess

NEGATE = Shader("scale.comp", (("OP(x)", "-x"),))
REPOSITORY = Path(__file__).parents[3]


class Compiles:
    """A compiler that counts."""

    def __init__(self, real: compilers.Compiler) -> None:
        self.real, self.count = real, 0

    def pick(self) -> compilers.Compiler:
        """What compiler.pick() gives while this one stands in for it."""
        return compilers.Compiler(self.real.identity, self.compile)

    def compile(self, file: Path, defines: Sequence[tuple[str, str]], folders: Sequence[Path]) -> bytes:
        """Count and compile."""
        self.count += 1
        return self.real.compile(file, defines, folders)


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Compiles:
    """The compiler that load() will use."""
    try:
        counting = Compiles(compilers.pick())
    except BackendMissingError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(compilers, "pick", counting.pick)
    return counting


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start with nothing in memory."""
    monkeypatch.setattr(spirv, "_loaded", {})


def without_compiler() -> compilers.Compiler:
    """Stands in for compiler.pick() on a machine that has none."""
    raise BackendMissingError("no compiler")


def restart() -> None:
    """Forget what this process has loaded; what is on disk stays."""
    spirv._loaded.clear()


def test_the_default_root_is_the_shaders_package() -> None:
    assert spirv.SHADERS.samefile(shaders.ROOT)


def test_memory_answers_before_the_disk(compiles: Compiles, root: Path, cache_folder: Path) -> None:
    module = load(NEGATE, root)
    assert module.name == "scale.comp -DOP(x)=-x"
    assert module.interface.push_bytes == 4 + 4
    for file in cache_folder.iterdir():
        file.unlink()
    assert load(Shader("scale.comp", (("OP(x)", "-x"),)), root) is module
    assert compiles.count == 1


def test_a_cache_hit_does_not_compile(compiles: Compiles, root: Path) -> None:
    first = load(NEGATE, root)
    restart()
    assert load(NEGATE, root) == first
    assert compiles.count == 1


def test_other_defines_are_another_module(compiles: Compiles, root: Path) -> None:
    assert load(NEGATE, root).code != load(Shader("scale.comp", (("OP(x)", "exp(x)"),)), root).code
    assert compiles.count == 2


def test_the_order_of_defines_does_not_matter(compiles: Compiles, root: Path) -> None:
    load(Shader("scale.comp", (("OP(x)", "-x"), ("A", "1"))), root)
    load(Shader("scale.comp", (("A", "1"), ("OP(x)", "-x"))), root)
    assert compiles.count == 1


@pytest.mark.parametrize("file", ["scale.comp", "include/types.glsl", "beside.glsl"])
def test_an_edit_is_compiled(compiles: Compiles, root: Path, file: str) -> None:
    load(NEGATE, root)
    restart()
    with (root / file).open("a") as stream:
        stream.write("// edited\n")
    load(NEGATE, root)
    assert compiles.count == 2


def test_an_editors_backup_is_not_an_edit(compiles: Compiles, root: Path) -> None:
    load(NEGATE, root)
    restart()
    (root / "include" / ".types.glsl.swp").write_bytes(b"\xff\x00")
    (root / "include" / ".#types.glsl").symlink_to("nowhere")
    load(NEGATE, root)
    assert compiles.count == 1


def test_another_compiler_builds_its_own(compiles: Compiles, root: Path) -> None:
    load(NEGATE, root)
    restart()
    compiles.real = compiles.real._replace(identity="the next release")
    load(NEGATE, root)
    assert compiles.count == 2


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "digest only"])
def test_a_damaged_file_is_built_anew(
    compiles: Compiles, root: Path, cache_folder: Path, damage: str
) -> None:
    first = load(NEGATE, root)
    (file,) = cache_folder.iterdir()
    good = file.read_bytes()
    bad = {
        "truncated": good[:-4],
        "flipped": good[:100] + bytes([good[100] ^ 1]) + good[101:],
        "empty": b"",
        "digest only": good[:32],
    }
    file.write_bytes(bad[damage])
    restart()
    assert load(NEGATE, root) == first
    assert compiles.count == 2
    assert file.read_bytes() == good


@pytest.mark.parametrize("content", [b"", b"garbage " * 40, b"\x03\x02\x23\x07" + bytes(60)])
def test_a_file_that_holds_no_module_is_built_anew_once(
    compiles: Compiles, root: Path, cache_folder: Path, content: bytes
) -> None:
    """Under a digest that is right."""
    first = load(NEGATE, root)
    (file,) = cache_folder.iterdir()
    good = file.read_bytes()
    for times in (2, 3):
        file_cache.write(file, content)
        restart()
        assert load(NEGATE, root) == first
        assert (compiles.count, file.read_bytes()) == (times, good)
        restart()
        load(NEGATE, root)
        assert compiles.count == times


def test_a_file_in_the_wheel_that_holds_no_module_is_passed_over(compiles: Compiles, root: Path) -> None:
    (file,) = build([NEGATE], root / "spirv", root)
    file_cache.write(file, b"garbage " * 40)
    first = load(NEGATE, root)
    restart()
    assert load(NEGATE, root) == first
    assert compiles.count == 2
    file_cache.write(file_of_user(root), b"garbage " * 40)
    (built,) = build([NEGATE], root / "spirv", root)
    assert file_cache.read(built) == first.code


def file_of_user(root: Path) -> Path:
    """What the compiler has made of NEGATE."""
    return module_store.user_file(spirv._key(NEGATE, root), compilers.pick().identity)


def test_a_compiler_that_makes_no_module(
    compiles: Compiles, root: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiles, "compile", lambda *arguments: b"garbage " * 40)
    with pytest.raises(ShaderError, match=r"scale\.comp -DOP\(x\)=-x: not SPIR-V"):
        load(NEGATE, root)
    assert not cache_folder.exists()


def test_an_unusable_cache_folder_is_no_error(
    compiles: Compiles, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("a file where the folder should be: root may write anywhere else")
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path / "file"))
    assert load(NEGATE, root).code
    restart()
    assert load(NEGATE, root).code
    assert compiles.count == 2


def test_the_cache_is_below_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DL4ALL_CACHE_DIR")
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name, appauthor: tmp_path / name)
    assert file_cache.folder() == tmp_path / "dl4all"


def test_what_the_wheel_holds_needs_no_compiler(
    compiles: Compiles, root: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = build([NEGATE, NEGATE], root / "spirv", root)
    assert compiles.count == 1
    assert file.stat().st_mode & 0o444 == 0o444 & ~current_umask()
    monkeypatch.setattr(compilers, "pick", without_compiler)
    assert load(NEGATE, root).interface.push_bytes == 8
    assert not cache_folder.exists()
    with pytest.raises(BackendMissingError):
        load(Shader("scale.comp", (("OP(x)", "x"),)), root)


def current_umask() -> int:
    """The umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_an_edited_shader_does_not_take_the_wheels_module(compiles: Compiles, root: Path) -> None:
    build([NEGATE], root / "spirv", root)
    (root / "scale.comp").write_text((root / "scale.comp").read_text() + "// edited\n")
    load(NEGATE, root)
    assert compiles.count == 2


def test_a_damaged_file_in_the_wheel_is_passed_over(compiles: Compiles, root: Path) -> None:
    (file,) = build([NEGATE], root / "spirv", root)
    file.write_bytes(file.read_bytes()[:-8])
    load(NEGATE, root)
    assert compiles.count == 2


def test_a_missing_shader_is_named(root: Path) -> None:
    with pytest.raises(ShaderError, match=r"reduce/nowhere\.comp"):
        load(Shader("reduce/nowhere.comp"), root)


def test_an_error_shows_the_defines(compiles: Compiles, root: Path) -> None:
    with pytest.raises(ShaderError, match=r"scale.comp -DOP\(x\)=alfa does not compile:\n.*alfa"):
        load(Shader("scale.comp", (("OP(x)", "alfa"),)), root)


def test_threads_get_the_same_module(compiles: Compiles, root: Path) -> None:
    together = threading.Barrier(8)
    modules = []

    def run() -> None:
        together.wait()
        modules.append(load(NEGATE, root))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(modules) == 8
    assert all(module is modules[0] for module in modules)


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python process that can import this checkout."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return ForkedProcess(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_two_processes_load_the_same_shader_at_once(
    compiles: Compiles, root: Path, cache_folder: Path
) -> None:
    program = (
        "import sys; from pathlib import Path; from dl4all.runtime.spirv import Shader, load;"
        "print(len(load(Shader('scale.comp', (('OP(x)', '-x'),)), Path(sys.argv[1])).code))"
    )
    both = [start(program, root) for _ in range(2)]
    sizes = [process.communicate()[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sizes == [str(len(load(NEGATE, root).code))] * 2
    assert compiles.count == 0, "neither process left a file that is whole"
    assert len(list(cache_folder.iterdir())) == 1, "a temporary file was left behind"


def test_a_reader_never_sees_a_part_of_a_file(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from dl4all.runtime.records import file_cache\n"
        "for _ in range(100): file_cache.write(Path(sys.argv[1]), sys.argv[2].encode() * 20_000)"
    )
    file = tmp_path / "module.spv"
    file_cache.write(file, b"first" * 20_000)
    writers = [start(program, file, word) for word in ("one__", "two__")]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        code = file_cache.read(file)
        assert code is not None
        seen.add(code)
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    assert seen <= {word * 20_000 for word in (b"first", b"one__", b"two__")}
    assert list(tmp_path.iterdir()) == [file]


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full_disk)
    file_cache.try_write(tmp_path / "module.spv", b"code")
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_compiled_by_few_runs(
    compiles: Compiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = compiles.real
    if real.compile_all is None:
        pytest.skip(f"{real.identity} compiles one by one")
    (root / "op").mkdir()
    (root / "op" / "near.glsl").write_text("#define NEAR 3.0\n")
    body = (root / "scale.comp").read_text().replace("void main", '#include "near.glsl"\nvoid main')
    (root / "op" / "scaled.comp").write_text(body)
    wrong = Shader("scale.comp")
    shaders = [
        *(Shader("scale.comp", (("OP(x)", f"{i}.0 * x"),)) for i in range(9)),
        Shader("op/scaled.comp", (("OP(x)", "NEAR * x"),)),
        Shader("text.comp", (("OP(x)", "x + 1.0"),), source=(root / "scale.comp").read_text()),
        NEGATE.storing([StorageType("float16")]),
        wrong,
    ]
    runs: list[int] = []

    def compile_all(sources: Sequence[Source], folders: Sequence[Path]) -> list[bytes | None]:
        runs.append(len(sources))
        assert real.compile_all is not None
        return real.compile_all(sources, folders)

    monkeypatch.setattr(compilers, "pick", lambda: compiles.pick()._replace(compile_all=compile_all))
    load(shaders[0], root)
    spirv.compile_missing(shaders, root)
    assert sum(runs) == 12  # all but the one that is there; those of 16 bits are made of the plain one
    assert len(runs) <= 3 * (os.cpu_count() or 1)
    made = [load(shader, root).code for shader in shaders[:-1]]
    assert compiles.count == 1
    with pytest.raises(ShaderError, match=r"scale\.comp does not compile"):
        load(wrong, root)
    restart()
    monkeypatch.setattr(module_store, "TARGET", "another one")  # nothing is found any more
    assert [load(shader, root).code for shader in shaders[:-1]] == made
