"""The claims of a simulated device: speeds, links, memory, and when it fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.work import Speeds

FailureKind = Literal["lost", "hang", "slow", "memory"]
"""The driver gives it up; it never answers again; it becomes slower; it lacks memory for one request."""


@dataclass(frozen=True)
class Failure:
    """A failure that is to happen in a phase of the work, after so many commands of that phase.

    >>> Failure("lost", "backward", after=3)
    Failure(kind='lost', phase='backward', after=3, factor=10.0)
    """

    kind: FailureKind
    phase: str = ""
    """As :mod:`dl4all.runtime.profiler.phase` names it, such as ``"backward"``; empty for any."""
    after: int = 0
    factor: float = 10.0  # by which "slow" is slower


@dataclass(frozen=True)
class Description:
    """The declared facts of a simulated device.

    Args:
        gflops: arithmetic, in 10^9 operations a second.
        gb_per_s: its memory, in 10^9 bytes a second.
        launch_us: microseconds of each kernel.
        link_gb_per_s: copies between it and the host, in each direction.
        link_us: microseconds of each copy.
        memory: bytes.
        computes: whether ops run their NumPy bodies; without, results are undefined, and only time passes.
        failures: what goes wrong, and when.
    """

    gflops: float = 1000.0
    gb_per_s: float = 100.0
    launch_us: float = 5.0
    link_gb_per_s: float = 10.0
    link_us: float = 10.0
    memory: int = 8 << 30
    computes: bool = True
    failures: tuple[Failure, ...] = ()

    @property
    def speeds(self) -> Speeds:
        """The same facts as seconds for each unit."""
        per_byte_moved = 1e-9 / self.link_gb_per_s
        return Speeds(
            launch=self.launch_us * 1e-6,
            per_byte=1e-9 / self.gb_per_s,
            per_flop=1e-9 / self.gflops,
            transfer=self.link_us * 1e-6,
            per_byte_up=per_byte_moved,
            per_byte_down=per_byte_moved,
        )

    def info(self, index: int) -> DeviceInfo:
        """The value of ``device.info``."""
        return DeviceInfo(
            index=index,
            hardware=f"a simulated device of {self.gflops:g} GFLOP/s",
            type="other",
            vendor="dl4all",
            driver="simulated",
            driver_version="",
            api_version="",
            memory=self.memory,
            subgroup_size=0,
            backends=("simulated",),
        )
