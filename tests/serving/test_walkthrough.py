"""The guide's way from a trained network to an answer, and the example, as a reader runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import dl4all as dl
from examples import serve_digits
from tests.serving.servers import Process, infer

ROOT = Path(__file__).parents[2]
pytest.importorskip("sklearn", reason="the digits come with scikit-learn")


@pytest.mark.usefixtures("deadline")
def test_the_commands_of_the_guide(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "serving.md").read_text()
    block = re.search(r"\n\n((?:    .*\n|\n)+?)\nIt prints", page)
    assert block is not None
    commands = "\n".join(line.removeprefix("    ") for line in block[1].splitlines())
    *before, last = commands.strip().split("\n")
    assert last == "dl4all serve models"
    script = "\n".join(before).replace("examples/", f"{ROOT}/examples/")
    script = script.replace(
        "dl4all train", f"{sys.executable} -m dl4all train --epochs 4 --device cpu --folder run"
    )
    subprocess.run(["bash", "-euc", script], check=True, cwd=tmp_path, timeout=300)
    images, digits = dl.data.digits().arrays
    with Process(tmp_path / "models") as process:
        for protocol, url in process.urls.items():
            scores = infer(url, "digits", protocol, {"pixels": images[:300].astype(np.float32)}).as_numpy(
                "scores"
            )
            assert (scores.argmax(1) == digits[:300]).mean() > 0.9


@pytest.mark.usefixtures("deadline")
def test_the_example() -> None:
    right = []
    for options in ((), ("--compile",)):
        done = CliRunner().invoke(serve_digits.main, ["--device", "cpu", "--epochs", "2", *options])
        assert done.exception is None, repr(done.exception)
        right.append(done.output.splitlines()[-1].split(",")[0])
    assert right[0] == right[1]
    assert float(right[0].split("%")[0]) > 85
