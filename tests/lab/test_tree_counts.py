"""The counts of the tree, on a small one and on this one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab.tree_counts import Trees, circles, counts, parsed, repeated_classes, sources, vague_definitions

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
    assert [number for _, number in counts(tmp_path).items()] == [1, 0, 0, 1, 4, 3, 2, 18, 1, 0, 1, 1]


@pytest.fixture(scope="module")
def trees() -> Trees:
    return parsed(sources(ROOT))


def test_files_import_each_other_one_way(trees: Trees) -> None:
    assert circles(trees) == []


def test_definitions_name_the_thing(trees: Trees) -> None:
    assert vague_definitions(trees) == []


SEVERAL_TIMES = {
    *("device", "device_of"),  # as torch.cuda has them, for dl.cuda and torch.dlall
    *("Buffer", "Event", "Stream"),  # protocols of the runtime, and what people have of them
    *("DataParallel", "GradScaler", "Transform", "autocast"),  # PyTorch has them several times
}


def test_a_class_name_stands_in_one_file(trees: Trees) -> None:
    """One word, one meaning."""
    assert repeated_classes(trees) == SEVERAL_TIMES


def test_other_counts() -> None:
    found = counts(ROOT)
    assert found["files of graph that import struct"] == 0
    assert found["files of the largest folder"] <= 20
    assert found["files that name a listener outside scheduler, runtime, graph, profiler"] <= 10
    assert found["methods of Device"] <= 20
    assert found["generated lines"] > 1_000
