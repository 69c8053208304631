"""Try a wheel and an sdist as a stranger would: each installed in an empty environment, outside the checkout.

    python -m build && python tools/release_check.py dist

In each environment: ``dl4all devices``, a training step on every device beside NumPy's numbers, the ResNet
script on digits and on a photograph, and the conformance suite of the ``cpu`` backend. Nothing of the
checkout can be imported. On a tag (``v1.2.3``, by GitHub's or GitLab's variables) the version must be the
tag's. Needs a Vulkan driver for more than the CPU, and for the sdist a GLSL compiler.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
STEP = """
import sys
from pathlib import Path
import numpy as np
import dl4all as dl
from dl4all import nn
from dl4all.nn import functional as F

assert Path(dl.__file__).is_relative_to(sys.prefix), dl.__file__
assert dl.__version__ == sys.argv[1], dl.__version__
rng = np.random.default_rng(0)
x, w = rng.standard_normal((7, 5)).astype(np.float32), rng.standard_normal((3, 5)).astype(np.float32)
y = rng.integers(0, 3, 7)
scores = x @ w.T
p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
expected = w - 0.5 * (p - np.eye(3)[y]).T @ x / len(y)
for name in [name for device in dl.devices() if not device.compiles_only for name in device.names]:
    layer = nn.Linear(5, 3, bias=False)
    layer.load_state_dict({"weight": w})
    layer.to(name)
    optimizer = dl.optim.SGD(layer.parameters(), lr=0.5)
    F.cross_entropy(layer(dl.tensor(x, device=name)), dl.tensor(y, device=name)).backward()
    optimizer.step()
    np.testing.assert_allclose(layer.weight.numpy(), expected, rtol=1e-4, atol=1e-5)
    print("a training step on", name)
"""
PHOTOGRAPH = """
import sys
from PIL import Image
from sklearn.datasets import load_sample_image
Image.fromarray(load_sample_image("china.jpg")).save(sys.argv[1])
"""


def tag(environment: Mapping[str, str]) -> str:
    """The tag that is being released, or nothing.

    Example:
        >>> tag({"GITHUB_REF_TYPE": "tag", "GITHUB_REF_NAME": "v0.1.0"})
        'v0.1.0'
    """
    if environment.get("GITHUB_REF_TYPE") == "tag":
        return environment.get("GITHUB_REF_NAME", "")
    return environment.get("CI_COMMIT_TAG", "")


def distributions(folder: Path) -> tuple[Path, Path, str]:
    """The wheel, the sdist and their version.

    Raises:
        click.ClickException: there is not exactly one of each, or their versions differ.
    """
    wheels, archives = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if (len(wheels), len(archives)) != (1, 1):
        raise click.ClickException(
            f"{folder}: expected one wheel and one sdist, got {len(wheels)} and {len(archives)}; "
            "python -m build makes both"
        )
    versions = [re.split(r"-|\.tar\.gz", file.name)[1] for file in (*wheels, *archives)]
    if len(set(versions)) != 1:
        raise click.ClickException(f"{folder}: the wheel is of {versions[0]}, the sdist of {versions[1]}")
    return wheels[0], archives[0], versions[0]


def check_tag(name: str, version: str) -> None:
    """Refuse to release a version under another one's tag."""
    if name and name != f"v{version}":
        raise click.ClickException(f"the tag is {name}, the distributions are of {version}")


def trial(file: Path, version: str, work: Path) -> None:
    """Install one distribution in an empty environment and use it; output goes to the terminal.

    Raises:
        subprocess.CalledProcessError: a command failed.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DL4ALL"))
    }
    environment |= {"DL4ALL_CACHE_DIR": str(work / "cache"), "DL4ALL_CALIBRATE": "0"}
    binaries = work / "env" / ("Scripts" if os.name == "nt" else "bin")

    def run(*command: object) -> None:
        words = [str(word) for word in command]
        print("  $", " ".join(word if "\n" not in word else "..." for word in words), flush=True)
        subprocess.run(words, cwd=work, env=environment, check=True)

    run(sys.executable, "-m", "venv", work / "env")
    run(binaries / "pip", "install", "-q", f"dl4all[demo] @ {file.resolve().as_uri()}", "pytest>=8")
    run(binaries / "dl4all", "devices")
    run(binaries / "python", "-W", "error", "-c", STEP, version)
    run(binaries / "python", "-c", PHOTOGRAPH, work / "china.png")
    shutil.copy(ROOT / "examples" / "resnet18.py", work)
    run(binaries / "python", "resnet18.py", "--repeat", "1")
    run(binaries / "python", "resnet18.py", "china.png", "--repeat", "1")
    run(binaries / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider",
        "--pyargs", "dl4all.testing.conformance", "--backend=cpu")  # fmt: skip


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default="dist")
@click.option("--wheel", "wheel_only", is_flag=True, help="The wheel alone: an sdist needs a GLSL compiler.")
def main(folder: Path, wheel_only: bool) -> None:
    """Try the wheel and the sdist in FOLDER, dist unless given."""
    wheel, archive, version = distributions(folder)
    check_tag(tag(os.environ), version)
    for file in (wheel,) if wheel_only else (wheel, archive):
        start = time.monotonic()
        print(f"\n== {file.name}", flush=True)
        with tempfile.TemporaryDirectory(prefix="dl4all-release-") as work:
            try:
                trial(file, version, Path(work))
            except subprocess.CalledProcessError as error:
                raise click.ClickException(f"{file.name}: {error}") from None
        print(f"{file.name} works ({time.monotonic() - start:.0f} s)")


if __name__ == "__main__":
    main()
