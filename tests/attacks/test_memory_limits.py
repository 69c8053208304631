"""Too little memory: an error of one kind, and right results as soon as there is enough again."""

from __future__ import annotations

import json

import pytest

from tests.conftest import need, run_python

GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "0"}  # 0: as many as usual
"""Else glibc keeps what was freed, and gives it out again whatever the limit is."""
ERRORS = ("OutOfMemoryError", "MemoryError")


def attack(devices: str, limits: str, mebibytes: str, **env: str) -> dict[str, str]:
    """What came of each attack; fails if the process ended or a result was wrong afterwards."""
    code = (
        "from tests.attacks.scarce_memory import main\n"
        f"main({devices!r}.split(','), {limits!r}.split(','), [{mebibytes}])"
    )
    done = run_python(code, DL4ALL_TOP="0", DL4ALL_TUNE="0", DL4ALL_FALLBACK="silent", **env)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    wrong = {what: result for what, result in found.items() if result not in (*ERRORS, "enough")}
    assert not wrong
    return found


@pytest.mark.vulkan
def test_6_mebibytes() -> None:
    """Each attack needs 15 MB or more. One process attacks both devices: it takes a second to start."""
    need("vulkan:0")
    found = attack("cpu,vulkan:0", "RLIMIT_AS", "6", **GIVE_BACK)
    assert len(found) == 2 * 9
    assert {what: result for what, result in found.items() if result == "enough"} == {}
    for device in ("cpu", "vulkan:0"):
        assert found[f"{device} RLIMIT_AS 6 load"] == found[f"{device} RLIMIT_AS 6 load a checkpoint"]
    assert found["vulkan:0 RLIMIT_AS 6 make"] == "OutOfMemoryError"


@pytest.mark.full
@pytest.mark.parametrize("env", [{}, GIVE_BACK], ids=["kept", "given back"])
@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("vulkan:0", marks=pytest.mark.vulkan)])
def test_other_limits(device: str, limit: str, env: dict[str, str]) -> None:
    """Down to nothing at all."""
    need(device)
    found = attack(device, limit, "0, 1, 4, 12, 24, 40", **env)
    assert set(found.values()) & set(ERRORS)
