"""Libraries over PyTorch on dlall, in an environment of their own.

    python -m lab.torch_frameworks [--device cpu --device vulkan:0] [--json FILE]

torchmetrics, diffusers, datasets, pyarrow and MLflow beside the checkout's dl4all: each result is compared
with PyTorch's CPU. A line for each tells the largest difference over the largest element; the exit status
is 1 where one is above 1e-5, or is no number. accelerate, transformers and Lightning have tests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from lab.peers.environment import environment
from lab.torch_versions import ROOT, project, requirements

FRAMEWORKS = (
    "torch==2.13.0", "torchmetrics==1.9.0", "diffusers==0.42.1", "transformers==5.24.0", "datasets==5.2.0",
    "mlflow-skinny==3.17.2",
)  # fmt: skip
SECONDS = 900
TOLERANCE = 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.torch_frameworks", description=__doc__)
    parser.add_argument("--device", action="append", help="of dl4all (repeatable; default: cpu and vulkan:0)")
    parser.add_argument("--json", type=Path, help="a file for all differences")
    arguments = parser.parse_args()
    python = environment("torch-frameworks", (*FRAMEWORKS, *requirements(project())))
    found = {device: differences(python, device) for device in arguments.device or ("cpu", "vulkan:0")}
    for device, rows in found.items():
        for name, difference in rows.items():
            print(f"{device:10} {name:36} {difference:.1e}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))
    sys.exit(not all(difference <= TOLERANCE for rows in found.values() for difference in rows.values()))


def differences(python: str, device: str) -> dict[str, float]:
    """The results of ``checks.py`` on a device of dl4all.

    Raises:
        SystemExit: it ended with an error, which it has printed.
    """
    settings = {
        "DL4ALL_DEVICE": device,
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
    done = subprocess.run(
        (python, "-W", "ignore", "-m", "lab.torch_frameworks.checks"),
        cwd=ROOT, env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True, timeout=SECONDS,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"[torch_frameworks] the checks on {device} ended with {done.returncode}")
    rows: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return rows


if __name__ == "__main__":
    main()
