"""Which matrices a device multiplies, as its driver says."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import dl4all as dl
from dl4all.runtime.device_info import CooperativeMatrix, limited
from dl4all.runtime.vulkan import cooperative_matrices as module
from dl4all.runtime.vulkan.cooperative_matrices import EXTENSION, cooperative_matrices
from tests.conftest import need

pytestmark = pytest.mark.vulkan
WORKGROUP, SUBGROUP = 2, 3
HALF, SINGLE, SIGNED, WIDE, BRAIN = 0, 1, 3, 5, 1000141000
FOUND = [
    (16, 16, 16, HALF, HALF, SINGLE, SINGLE, 0, SUBGROUP),
    (16, 8, 32, SIGNED, SIGNED, WIDE, WIDE, 1, SUBGROUP),
    (128, 128, 16, HALF, HALF, SINGLE, SINGLE, 0, WORKGROUP),
    (8, 8, 16, BRAIN, BRAIN, SINGLE, 77, 0, SUBGROUP),
]
FIELDS = (
    "MSize", "NSize", "KSize", "AType", "BType", "CType", "ResultType", "saturatingAccumulation", "scope",
)  # fmt: skip


def driver(rows: Sequence[tuple[int, ...]], result: int = 0) -> Callable[..., Any]:
    """Stands in for the extension's function, which is asked for a count first."""

    def ask(handle: Any, count: Any, into: Any) -> int:
        if into:
            for one, row in zip(into, rows, strict=True):
                assert one.sType
                for name, value in zip(FIELDS, row, strict=True):
                    setattr(one, name, value)
        count[0] = len(rows)
        return result

    return ask


def test_those_of_a_subgroup_are_listed_by_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    monkeypatch.setattr(module, "function", lambda *_: driver(FOUND))
    assert cooperative_matrices(None, None, {EXTENSION}) == (
        CooperativeMatrix(16, 16, 16, "float16", "float16", "float32", "float32"),
        CooperativeMatrix(16, 8, 32, "int8", "int8", "int32", "int32", saturates=True),
        CooperativeMatrix(8, 8, 16, "bfloat16", "bfloat16", "float32", "77"),
    )


def test_without_the_extension_or_an_answer_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    monkeypatch.setattr(module, "function", lambda *_: driver(FOUND))
    assert cooperative_matrices(None, None, {"VK_KHR_8bit_storage"}) == ()
    for function in (driver(FOUND, result=-3), driver([]), None):
        monkeypatch.setattr(module, "function", lambda *_, function=function: function)
        assert cooperative_matrices(None, None, {EXTENSION}) == ()


def test_the_least_device_has_none(monkeypatch: pytest.MonkeyPatch) -> None:

    matrix = CooperativeMatrix(16, 16, 16, "float16", "float16", "float32", "float32")
    info = dataclasses.replace(dl.device("cpu").info, cooperative_matrices=(matrix,))
    assert limited(info) == info
    monkeypatch.setenv("DL4ALL_LIMITS", "minimum")
    assert limited(info).cooperative_matrices == ()
