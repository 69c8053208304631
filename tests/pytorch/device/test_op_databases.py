"""PyTorch's databases of ops, modules and optimizers: a part of the nightly ``lab/torch_ops.py``."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")
pytest.importorskip("expecttest", reason="PyTorch's databases import it")

from lab.torch_databases import (  # noqa: E402
    page,
    runs,
)
from lab.torch_databases.outcome import Outcome, reason  # noqa: E402
from lab.torch_databases.runs import Run  # noqa: E402

ALL = "ops+modules+optimizers"  # in one process: each imports PyTorch's databases for longer than it computes

NATIVE = [
    "add", "div.no_rounding_mode", "where", "clamp", "sum", "var", "softmax", "matmul", "addmm", "cat",
    "index_select", "gather", "tril", "flip", "nn.functional.gelu", "nn.functional.linear",
    "nn.functional.layer_norm", "nn.functional.dropout",
    "nn.Linear", "nn.Conv2d", "nn.BatchNorm1d", "nn.LazyConv1d", "nn.MultiheadAttention",
    "Adam", "SGD",
]  # fmt: skip
"""Entries that run on the device without the CPU."""

RIGHT = ["linalg.cholesky", "fft.rfft", "unique", "view_as_complex", "nonzero", "nn.FractionalMaxPool2d"]
"""Entries that are right with the CPU's help."""


def outcomes(run: Run, names: list[str]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in runs.check(run, names, lambda row: None)}


def test_entries_are_native() -> None:
    rows = outcomes(Run(ALL), NATIVE)
    assert {name: row["why"] for name, row in rows.items() if row["status"] != "native"} == {}
    assert all(row["samples"] for row in rows.values())


@pytest.mark.full
def test_entries_are_right_with_the_fallback() -> None:
    rows = outcomes(Run(ALL, mode="fallback"), RIGHT)
    assert {name: row["why"] for name, row in rows.items() if row["status"] != "native"} == {}


@pytest.mark.full
@pytest.mark.vulkan
def test_entries_are_native_on_a_device() -> None:
    rows = outcomes(Run("ops", "vulkan:0", variants=False), ["softmax", "nn.functional.linear"])
    assert {name: row["why"] for name, row in rows.items() if row["status"] != "native"} == {}


def test_a_dead_child_is_one_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[list[str]] = []

    def lines(run: Run, wanted: list[str]) -> Any:
        begun.append(list(wanted))
        for name in list(wanted):
            yield {"begun": name}
            if name == "second":
                raise runs.ChildDied("signal 11")
            yield {"ended": Outcome(name).as_row()}

    monkeypatch.setattr(runs, "_lines", lines)
    rows = runs.check(Run("ops"), ["first", "second", "third"], lambda row: None)
    assert [(row["name"], row["status"]) for row in rows] == [
        ("first", "native"),
        ("second", "crashed"),
        ("third", "native"),
    ]
    assert begun == [["first", "second", "third"], ["third"]]


def test_the_page_counts_each_status() -> None:
    rows = [
        Outcome("add"),
        Outcome("svd", "refused", "aten::_linalg_svd: there is no kernel"),
        Outcome("bad"),
    ]
    rows[2].worsen("wrong", "2 | 3")
    rows[2].worsen("refused", "less bad than wrong")
    found = {"ops native": [row.as_row() for row in rows]}
    shown = page.text(found, "cpu", "float32")
    assert "| ops | native only | 1 | 1 | 0 | 0 | 1 | 0 |" in shown
    assert "| bad | 0 | wrong |  | 2 \\| 3 |  |" in shown
    assert "| aten::_linalg_svd | 1 |" in shown


def test_a_refusal_names_the_op() -> None:
    from dl4all.errors import FallbackError

    text = "[aten::x.out] runs on the CPU (there is no kernel), and DL4ALL_TORCH_FALLBACK=error forbids it"
    assert reason(FallbackError(text)) == "aten::x.out: there is no kernel"
