"""The counts of the tree, on a small one and on this one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab.tree_counts import COUNTS, Source, circles, repeated_classes, source, vague_definitions

ROOT = Path(__file__).parents[2]
FILES = {
    "dl4all/__init__.py": """'A package.'
""",
    "dl4all/one.py": """'What one is.'
from dl4all.two import Two
class Same:
    is_host = True
""",
    "dl4all/two.py": """'Two.'
class Two:
    def f(self):
        from dl4all import one
class Same: ...
""",
    "dl4all/graph/three.py": """'Three.'
import struct
if TYPE_CHECKING:
    from dl4all import one
""",
    "scheduler/device.py": """'A device.'
class Device:
    def launch(self): ...
    def free(self): ...
""",
}


def test_a_small_tree(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    assert [count(source(tmp_path)) for count in COUNTS.values()] == [1, 0, 0, 1, 4, 3, 2, 18, 1, 0, 1, 1]


@pytest.fixture(scope="module")
def tree() -> Source:
    return source(ROOT)


def test_files_import_each_other_one_way(tree: Source) -> None:
    assert circles(tree.trees) == []


def test_definitions_name_the_thing(tree: Source) -> None:
    assert vague_definitions(tree.trees) == []


SEVERAL_TIMES = {
    *("device", "device_of"),  # as torch.cuda has them, for dl.cuda and torch.dlall
    *("Buffer", "Event", "Stream"),  # protocols of the runtime, and what people have of them
    *("DataParallel", "GradScaler", "Transform", "autocast"),  # PyTorch has them several times
}


def test_a_class_name_stands_in_one_file(tree: Source) -> None:
    """One word, one meaning."""
    assert repeated_classes(tree.trees) == SEVERAL_TIMES


def test_other_counts(tree: Source) -> None:
    most = {
        "files of graph that import struct": 0,
        "files of the largest folder": 20,
        "files that name a listener outside scheduler, runtime, graph, profiler": 10,
        "methods of Device": 20,
    }
    assert {name: COUNTS[name](tree) for name in most if COUNTS[name](tree) > most[name]} == {}
    assert COUNTS["generated lines"](tree) > 1_000
