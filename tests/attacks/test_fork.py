"""A forked child is refused by its parent's devices at once, ends in peace, and computes on the cpu."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.forked_children import X
from tests.conftest import REPOSITORY, need, parameter, run_python
from tests.support.forked_process import run_forked
from tests.support.subcases import FULL

ROUNDS = 200 if FULL else 5  # children that are forked while threads compute
CODE = "from tests.attacks import forked_children as f\nf.run(f.{call})"
TWICE = (X * 2).tolist()
ROWS = [[[0.0, 1.0, 2.0]], [[3.0, 4.0, 5.0]]]
ON_HOST = [
    [[3.0, 3.0], [5.0, 5.0], [7.0, 7.0]],
    ROWS,
    (X + 1).tolist(),
    True,
    np.zeros((2, 3)).tolist(),
    True,
]
ON_CPU = {
    "op": TWICE, "product": [[3.0, 3.0], [12.0, 12.0]], "numpy": X.tolist(), "view": X.T.tolist(),
    "item": 5.0, "host view": X.tolist(), "in place": (X + 1).tolist(),
    "step": [[-0.5, -0.5], [-1.5, -1.5], [-2.5, -2.5]], "upload": [1.0, 2.0], "empty": [3], "random": [3],
    "allocate": 64, "to": X.tolist(), "auto": [1.0, 1.0], "with": [1.0, 1.0], "by name": "cpu",
    "again": "cpu#1", "default": None, "synchronize": None, "synchronize by name": None, "event": True,
    "memory": True, "trim": True, "download under way": 24, "profile": TWICE, "stream": TWICE,
    "new stream": TWICE, "loader": 2, "group": 2,
}  # fmt: skip
THERE_ALREADY = {"kompute:0": {"download under way": 24}}  # it waits for each copy


def outcome(call: str, **env: str) -> Any:
    """What an attack's process prints."""
    settings = {"DL4ALL_CALIBRATE": "0", "DL4ALL_TUNE": "0", "DL4ALL_TOP": "1", "DL4ALL_THREADS": "2", **env}
    done = run_python(CODE.format(call=call), **settings)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", [parameter(name) for name in ("cpu", "vulkan:0", "kompute:0")])
def test_a_forked_child_is_refused_or_computes(name: str) -> None:
    need(name)
    several = name != "kompute:0" or FULL
    found = outcome(f"attack, {name!r}, {ROUNDS}, {several}", DL4ALL_DEVICE=name)
    refused = dict.fromkeys(ON_CPU, "ForkError") | THERE_ALREADY.get(name, {})
    assert found["uses"] == (ON_CPU if name == "cpu" else refused)
    assert len(found["left"]) == (10 if several else 5)
    assert found["left"].pop("tasks before") == (0 if name == "cpu" else "ForkError")
    assert found["left"].pop("closing", "closed") == "closed"
    assert set(found["left"].values()) == {"ForkError"}
    assert found["host"] == ON_HOST
    assert found["calibrate"] == ("" if name == "cpu" else "ForkError")
    assert found["farewells"] == {
        "end": 0, "sys.exit": 3, "os._exit": 4, "raise": 1, "collect": 0, "refused": 0,
    }  # fmt: skip
    refusal = {"process": 5, "pool": "ForkError"}
    assert found["multiprocessing"] == ({"process": 0, "pool": TWICE} if name == "cpu" else refusal)
    assert found["grandchild"] == TWICE
    assert found["wrong"] == []
    assert found["afterwards"] == TWICE


@pytest.mark.vulkan
def test_a_child_of_a_process_without_open_devices_opens_its_own() -> None:
    names = ["vulkan:0", "kompute:0", "cpu"]
    for name in names[:2]:
        need(name)
    found = outcome(f"before_opening, {names}")
    assert found["used"] == [[TWICE] * len(names)] * 2
    assert min(found["listed"]) > 1
    assert found["status"] == 0
    assert found["locked"] == [True, True]


@pytest.mark.full
def test_the_recipes_of_the_page_do_what_they_say(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "processes.md").read_text("utf-8")
    recipes = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert len(recipes) == 4
    for recipe in recipes:
        script = tmp_path / "recipe.py"
        script.write_text(recipe, "utf-8")
        done = run_forked(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        said = re.findall(r"print\(.*# (\[.*\])$", recipe, re.M)
        assert (done.stdout.splitlines(), done.returncode) == (said, 0), done.stderr
