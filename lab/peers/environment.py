"""Which peers there are, and a virtual environment for each that is not installed beside dl4all."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

from dl4all.runtime.records import file_cache

PIP_SECONDS = 1800


class Peer(NamedTuple):
    """A script of this folder with its arguments, and what it needs from PyPI beside dl4all's environment."""

    module: str
    arguments: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    vulkan: bool = True  # whether it is to run on the Vulkan device


PEERS = {
    "dl4all-vulkan": Peer("dl4all_peer", ("vulkan:0",)),
    "dl4all-kompute": Peer("dl4all_peer", ("kompute:0",)),
    "dl4all-cpu": Peer("dl4all_peer", ("cpu",), vulkan=False),
    "ncnn": Peer("ncnn_peer", requirements=("ncnn==1.0.20261020", "numpy")),
    "iree": Peer(
        "iree_peer", requirements=("iree-base-compiler==3.13.0", "iree-base-runtime==3.13.0", "numpy")
    ),
    "tinygrad": Peer("tinygrad_peer", requirements=("tinygrad==0.14.0", "dawn-python==0.3.0", "numpy")),
    "onnxruntime": Peer(
        "onnxruntime_peer", requirements=("onnxruntime==1.32.0", "onnx==1.23.2", "numpy"), vulkan=False
    ),
    "numpy": Peer("numpy_peer", vulkan=False),
    "torch": Peer("torch_peer", vulkan=False),
}


class InstallError(Exception):
    """A peer's environment cannot be made; the message is pip's last line."""


def interpreter(name: str) -> str:
    """The Python that runs a peer, after installing what it needs. InstallError where that fails."""
    needs = PEERS[name].requirements
    return environment(name, needs) if needs else sys.executable


def environment(name: str, needs: tuple[str, ...]) -> str:
    """The Python of a virtual environment with some packages. InstallError where they cannot be installed."""
    folder = file_cache.folder() / "peers" / name
    stamp = folder / "installed.txt"
    wanted = "\n".join((sys.version, *needs))
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    with contextlib.suppress(FileNotFoundError):
        if stamp.read_text() == wanted:
            return str(python)
    print(f"installing {' '.join(needs)} into {folder}", file=sys.stderr)
    try:
        venv.create(folder, clear=True, with_pip=True)
        install(python, needs)
        stamp.write_text(wanted)
    except (OSError, subprocess.SubprocessError) as error:
        raise InstallError(f"cannot be installed: {error}") from error
    return str(python)


def install(python: Path, needs: tuple[str, ...]) -> None:
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--only-binary=:all:", *needs],
        capture_output=True,
        text=True,
        timeout=PIP_SECONDS,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise InstallError(f"cannot be installed: {lines[-1].removeprefix('ERROR: ')}")
