"""A process of ``dl4all launch``: chooses its device, and runs the script."""

from __future__ import annotations

import os
import sys

from dl4all.cli.script import run_script
from dl4all.config import device_setting
from dl4all.distributed.process_group.launch_variables import LAUNCHERS
from dl4all.runtime.registry import devices

ON_CPUS = ("cpu", "software")
"""The types of devices that are no GPUs."""


def device_of(local_rank: int) -> str:
    """The device of a process of this host: a GPU of its own as long as there are some, then the CPU."""
    gpus = [info for info in devices() if info.type not in ON_CPUS and not info.compiles_only]
    return gpus[local_rank].names[0] if local_rank < len(gpus) else "cpu"


def main() -> int:
    """Run the script that the arguments name; returns its exit status."""
    ranks = (os.environ[names[2]] for names in LAUNCHERS.values() if names[2] in os.environ)
    if device_setting() is None:
        os.environ["DL4ALL_DEVICE"] = device_of(int(next(ranks, "0")))
    return run_script(sys.argv[1], tuple(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
