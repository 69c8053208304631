"""How long a launch will take at most, so that none keeps a device busy until its driver gives it up.

Rough and on the safe side: work and memory traffic at a fraction of the speed that was measured, or that the
slowest devices of a kind have. Too much caution costs a submission more now and then.
"""

from __future__ import annotations

from typing import NamedTuple

from dl4all.runtime import measurements
from dl4all.runtime.device_info import DeviceInfo

# GFLOP/s and GB/s of slow devices of each kind: those of phones, ten years old cards, two busy cores.
SLOW = {"discrete": (400.0, 40.0), "integrated": (20.0, 4.0), "virtual": (20.0, 4.0)}
SLOWEST = (4.0, 1.0)
CAUTION = 8.0  # kernels reach an eighth of what the best one of them reaches, or more


class Rates(NamedTuple):
    """Seconds for each unit of work, at most."""

    per_flop: float
    per_byte: float


def rates(name: str, info: DeviceInfo) -> Rates:
    """Those of a device, by its measurements if there are any.

    >>> from dl4all.runtime.null.backend import describe
    >>> rates("null:0", describe())
    Rates(per_flop=2e-09, per_byte=8e-09)
    """
    found = measurements.lookup(name, info)
    if found is not None and not found.problem and found.matmul_gflops > 0 and found.copy_gb_per_s > 0:
        gflops, gigabytes = found.matmul_gflops, found.copy_gb_per_s
    else:
        gflops, gigabytes = SLOW.get(info.type, SLOWEST)
    return Rates(CAUTION / (gflops * 1e9), CAUTION / (gigabytes * 1e9))
