"""The counts of the tree, on a small one and on this one."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.tree_counts import counts

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


def test_this_tree() -> None:
    found = counts(ROOT)
    assert found["files of graph that import struct"] == 0
    assert found["circles of files"] == 0
    assert found["files of the largest folder"] <= 20
    assert found["definitions that begin with What, Where, How, Whom, Those"] == 0
    assert found["generated lines"] > 1_000
