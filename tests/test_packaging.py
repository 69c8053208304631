"""What is declared in pyproject.toml is what lies in the tree, and what a user gets from a wheel."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import dl4all
from dl4all.lazy_names import install_command
from tests.runtime.test_plugins import SUITE, TOY, write_distribution
from tests.support.parts import PARTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages_of(folder: Path, name: str) -> set[str]:
    found = {name}
    for init in folder.rglob("__init__.py"):
        relative = init.parent.relative_to(folder)
        if relative.parts and relative.parts[0] not in PARTS:
            found.add(".".join([name, *relative.parts]))
    return found


def test_every_package_is_declared() -> None:
    tree = packages_of(ROOT / "dl4all", "dl4all")
    for part in PARTS:
        tree |= packages_of(ROOT / part, f"dl4all.{part}")
    assert set(project()["tool"]["setuptools"]["packages"]) == tree


def test_messages_and_pages_name_packages_that_an_index_has() -> None:
    """Not ``dl4all[extra]``, which no index has yet: the packages of the extra, or those of a clone."""
    texts = [*(ROOT / "dl4all").rglob("*.py"), ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert [str(path) for path in texts if "install 'dl4all[" in path.read_text("utf-8")] == []
    assert install_command("mpi").startswith("pip install 'mpi4py>=")
    sources = "".join(path.read_text("utf-8") for path in texts if path.suffix == ".py")
    named = set(re.findall(r"""install_command\(['"]([\w-]+)['"]\)|extra=['"]([\w-]+)['"]""", sources))
    assert {one or other for one, other in named} <= set(project()["project"]["optional-dependencies"])
    assert len(named) > 8
    of_others = install_command("automl").split()
    assert {"'optuna>=5'", "'pandas>=2'", "'pillow>=10'"} <= set(of_others)


@pytest.mark.parametrize("part", PARTS)
def test_links_lead_to_the_real_folders(part: str) -> None:
    link = ROOT / "dl4all" / part
    assert link.is_symlink()
    assert link.readlink() == Path(f"../{part}")
    assert project()["tool"]["setuptools"]["package-dir"][f"dl4all.{part}"] == part


@pytest.mark.parametrize("part", PARTS)
def test_parts_refuse_to_be_imported_under_another_name(part: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {part}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert f"import this package as dl4all.{part}" in done.stderr


def test_versions_agree() -> None:
    declared = project()["project"]["version"]
    assert dl4all.__version__ == declared
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert declared in headings[0]


def test_every_dependency_says_what_it_is_for() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    start = lines.index("dependencies = [")
    listed = lines[start + 1 : lines.index("]", start)]
    assert len(listed) == len(project()["project"]["dependencies"])
    assert [line for line in listed if "#" not in line] == []


def test_all_names_of_the_package_exist() -> None:
    assert [name for name in dl4all.__all__ if not hasattr(dl4all, name)] == []


OUTSIDE = """
import json
import sys
import numpy as np
import dl4all as dl
from dl4all.runtime import spirv

def refuse(*_, **__):
    raise AssertionError("a shader was compiled")

spirv.compilers.pick = refuse
net = dl.models.resnet18().eval()
x = dl.randn(1, 3, 64, 64, device="cpu")
expected = net(x).numpy()
got = net.to("vulkan:0")(x.to("vulkan:0")).numpy()
print(json.dumps({
    "file": dl.__file__,
    "numpy": np.__version__,
    "difference": float(abs(got - expected).max() / abs(expected).max()),
}))
"""


COUNT = """
from dl4all.graph.op_codes.interpreter import INTERPRETERS
from dl4all.ops import all_shaders
from dl4all.optim.step.foreign import COUNTED_ADAM, COUNTED_AMSGRAD

# Compilers here do not know cooperative matrices, the other optional ones.
print(len({*all_shaders(), *INTERPRETERS.values(), COUNTED_ADAM, COUNTED_AMSGRAD}))
"""


@pytest.mark.slow
def test_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    """Built from the sdist, installed apart from the checkout, run on Vulkan with no compiler."""
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    wheel = next(tmp_path.glob("*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    # Counted in a process of its own: in this one, examples of docstrings may have declared more.
    counted = subprocess.run(
        [sys.executable, "-c", COUNT], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert sum(name.endswith(".spv") for name in names) == int(counted.stdout)
    assert {"pytest_dl4all.py", "dl4all/testing/conformance/conftest.py"} <= set(names)
    assert {"dl4all/utils/data/__init__.pyi", "dl4all/cuda/amp.pyi", "dl4all/torch/__init__.pyi"} <= set(
        names
    )

    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    wanted = [str(wheel), "pytest>=8"]  # a GLSL compiler is on this machine
    pip = sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile"
    subprocess.run([*pip, *wanted], check=True, capture_output=True)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["DL4ALL_CACHE_DIR"] = str(tmp_path / "cache")
    done = subprocess.run(
        [python, "-W", "error", "-c", OUTSIDE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert Path(report["file"]).is_relative_to(tmp_path / "env")
    assert int(report["numpy"].split(".")[0]) >= 2  # nothing but kp asks for NumPy 1
    assert report["difference"] < 1e-4

    listed = subprocess.run(
        [tmp_path / "env" / "bin" / "dl4all", "devices", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    backends = {name for device in json.loads(listed.stdout)["devices"] for name in device["backends"]}
    assert backends == {"cpu", "vulkan"}

    # The conformance suite comes along, for backends of other packages.
    write_distribution(tmp_path / "env" / "plugins", "mine", TOY, "Fake-Board")
    proved = subprocess.run(  # null checks programs too, which compiles them
        [python, "-m", "pytest", "-q", "--pyargs", SUITE, "--backend=mine:3", "--backend=null"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "PYTHONPATH": str(tmp_path / "env" / "plugins")},
    )
    assert proved.returncode == 0, proved.stdout + proved.stderr
    assert "passed" in proved.stdout
