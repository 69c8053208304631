"""Whether results share memory with operands, for each function that PyTorch has, too: found by trying both.

A result that is a view in one library and a copy in the other loses or spreads the writes of a program. The
whole product runs in full runs; the usual one takes a sample of each function, and on devices the calls that
have nothing to do, where copies are left out most easily.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="what is compared with")
pytest.importorskip("expecttest", reason="PyTorch's databases import it")

import dl4all as dl  # noqa: E402
from lab.peer_databases import aliases  # noqa: E402
from lab.peer_databases.operands import moved, peer_tensors  # noqa: E402
from tests.conftest import need  # noqa: E402
from tests.support.subcases import FULL  # noqa: E402

ENTRIES = aliases.entries(torch.float32)
NEUTRAL = [name for name in ENTRIES if name.startswith("call ")]

ON_DEVICES = {
    "call 28 cpu": "of a device it is a copy",
    "tensor_split": "PyTorch wants the tensor of positions on the CPU",
}
"""What differs between devices as it should."""


def differences(names: list[str], *, samples: int, **options: Any) -> dict[str, Any]:
    """What is not as in PyTorch: a function that refuses, or is missing, shares nothing."""
    found, tried = {}, 0
    for name in names:
        outcome = aliases.check(name, ENTRIES[name], torch.float32, samples=samples, **options)
        tried += outcome.counts["equal"]
        wrong = {why: calls for why, calls in outcome.reasons.items() if why.startswith(("wrong", "crashed"))}
        if wrong:
            found[name] = wrong
    assert tried or found
    return found


def test_of_each_function() -> None:
    with dl.device("cpu"):
        assert differences(list(ENTRIES), samples=aliases.SAMPLES if FULL else 1) == {}


@pytest.mark.vulkan
def test_on_a_device() -> None:
    need("vulkan:0")
    with dl.device("vulkan:0"):
        names = list(ENTRIES) if FULL else NEUTRAL
        assert differences([name for name in names if name not in ON_DEVICES], samples=2) == {}


def test_through_the_device_of_pytorch() -> None:
    import dl4all.torch  # noqa: F401

    names = list(ENTRIES) if FULL else NEUTRAL
    names = [name for name in names if name not in ON_DEVICES]
    assert differences(names, samples=2, computed=aliases.on_dlall) == {}


def test_a_difference_is_seen() -> None:
    """Of a function that returns its operand in place of a copy, and one that copies in place of a view."""

    def lazy(function: Any, operands: Any) -> Any:
        given = tuple(map(moved, operands))
        return peer_tensors(list(given)), peer_tensors(given[0])

    def eager(function: Any, operands: Any) -> Any:
        given, results = aliases.by_peer(function, operands)
        return given, [result.clone() for result in results]

    assert differences(["neg"], samples=1, computed=lazy).keys() == {"neg"}
    assert differences(["t"], samples=1, computed=eager).keys() == {"t"}
