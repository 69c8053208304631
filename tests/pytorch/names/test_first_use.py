"""The library is loaded at the first use of a name, whatever is asked for first."""

from __future__ import annotations

import pytest

from tests.conftest import run_python

LOADED = "import sys; print('numpy' in sys.modules); "


def printed(code: str) -> list[str]:
    ran = run_python(code, ())
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split("\n")[:-1]


def test_an_import_loads_nothing() -> None:
    assert printed(f"import dl4all; {LOADED}dl4all.ones; {LOADED}") == ["False", "True"]


@pytest.mark.parametrize(
    "first",
    [
        "import dl4all.tensor.creation", "from dl4all.tensor.creation import zeros", "import dl4all.nn as nn",
        "from dl4all.utils.data import DataLoader", "from dl4all import nn", "import dl4all.data",
        "from dl4all import *", "import dl4all.cli.devices", "import dl4all.ops.core.op",
        "import dl4all.public", "import dl4all; dir(dl4all)", "from dl4all.errors import ShapeError",
        "import dl4all.cuda.amp",
    ],
)  # fmt: skip
@pytest.mark.sampled(2)
def test_whatever_comes_first(first: str) -> None:
    code = f"""
{first}
import dl4all, dl4all.data, dl4all.tensor.random, dl4all.nn.functional as F
from dl4all import nn as layers
assert dl4all.nn is layers and F is layers.functional
print(dl4all.tensor([1.0]).tolist(), type(dl4all.data).__name__, dl4all.float, len(dl4all.__all__) > 400)
try:
    dl4all.transmogrify
except AttributeError as error:
    print(error)
"""
    assert printed(code) == ["[1.0] module float32 True", "'dl4all' has no attribute 'transmogrify'"]


def test_the_command_as_a_module() -> None:
    code = "import runpy, sys; sys.argv[1:] = ['--version']; runpy.run_module('dl4all', run_name='__main__')"
    assert run_python(code).stdout.startswith("dl4all, version ")
