"""GPU families whose compilers run without the GPU, and how to have a driver describe one.

AMD: Mesa's RADV does it itself, up to 25.x (``RADV_FORCE_FAMILY``). Intel and NVIDIA need a stub of the
kernel's interface, which Mesa's sources build (``-Dtools=drm-shim,intel``); ``DL4ALL_INTEL_STUB`` and
``DL4ALL_NOUVEAU_STUB`` say where it lies.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ICD_FOLDERS = ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")

Vendor = Literal["amd", "intel", "nvidia"]


class FamilyMissing(Exception):
    """This family's compiler cannot be had here; the message says what is missing."""


@dataclass(frozen=True)
class Family:
    """A generation of GPUs.

    ``drivers`` are names by which versions of the driver know it, the newest first. ``least_waves`` are the
    waves a SIMD that products and convolutions should leave room for, and all other kernels.
    ``halved`` says that waves of 64 lanes are counted as two.
    """

    name: str
    vendor: Vendor
    what: str
    drivers: tuple[str, ...]
    least_waves: tuple[int, int] = (0, 0)
    halved: bool = False


GCN, RDNA = (2, 5), (4, 8)
FAMILIES = {
    family.name: family
    for family in (
        Family("polaris10", "amd", "Radeon RX 480, GCN 4", ("polaris10",), GCN),
        Family("vega10", "amd", "Radeon RX Vega, GCN 5", ("vega10",), GCN),
        Family("navi10", "amd", "Radeon RX 5700, RDNA 1", ("navi10",), RDNA, halved=True),
        Family("navi21", "amd", "Radeon RX 6800, RDNA 2", ("navi21",), RDNA, halved=True),
        Family("navi31", "amd", "Radeon RX 7900, RDNA 3", ("navi31", "gfx1100"), RDNA, halved=True),
        Family("dg2", "intel", "Arc A770, Xe-HPG", ("dg2",)),
        Family("lnl", "intel", "Lunar Lake, Xe2", ("lnl",)),
        Family("turing", "nvidia", "GeForce RTX 20", ("160",)),
        Family("ampere", "nvidia", "GeForce RTX 30", ("170",)),
    )
}

ICDS: dict[Vendor, str] = {"amd": "radeon_icd", "intel": "intel_icd", "nvidia": "nouveau_icd"}
STUBS: dict[Vendor, tuple[str, str, str]] = {
    "intel": ("DL4ALL_INTEL_STUB", "libintel_noop_drm_shim.so", "INTEL_STUB_GPU_PLATFORM"),
    "nvidia": ("DL4ALL_NOUVEAU_STUB", "libnouveau_noop_drm_shim.so", "NOUVEAU_CHIPSET"),
}
"""The variable that says where a vendor's stub lies, its file, and the variable that names the GPU to it."""


def environments(
    family: Family, icd: str = "", variables: Mapping[str, str] = os.environ
) -> list[dict[str, str]]:
    """The variables of a process in which the driver describes this family, for each name that it may have.

    Args:
        icd: the driver's manifest, instead of the one that is installed.
        variables: those of this process.

    Raises:
        FamilyMissing: driver or stub are not here.
    """
    manifest = icd or _manifest(family.vendor)
    common = {
        "VK_ICD_FILENAMES": manifest,
        "VK_DRIVER_FILES": manifest,  # what newer loaders call it
        "MESA_SHADER_CACHE_DISABLE": "1",
        "DL4ALL_LIMITS": "",
        "DL4ALL_TUNE": "0",
        "DL4ALL_VALIDATION": "",
    }
    if family.vendor == "amd":
        return [{**common, "RADV_FORCE_FAMILY": name} for name in family.drivers]
    place, file, chip = STUBS[family.vendor]
    stub = variables.get(place, "")
    if not stub or not Path(stub).is_file():
        raise FamilyMissing(
            f"{family.name} needs {file}, which Mesa's sources build; name it by {place}=PATH"
        )
    return [{**common, "LD_PRELOAD": stub, chip: name} for name in family.drivers]


def _manifest(vendor: Vendor) -> str:
    found = [path for folder in ICD_FOLDERS for path in sorted(Path(folder).glob(f"{ICDS[vendor]}*.json"))]
    machine = os.uname().machine
    own = [path for path in found if machine in path.name] or found
    if not own:
        raise FamilyMissing(
            f"no {ICDS[vendor]}*.json in {', '.join(ICD_FOLDERS)}; apt install mesa-vulkan-drivers"
        )
    return str(own[0])
