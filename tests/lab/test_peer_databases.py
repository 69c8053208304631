"""PyTorch's database of ops by dl4all's functions: a part of the nightly ``lab.peer_databases``."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="what is compared with")
pytest.importorskip("expecttest", reason="PyTorch's databases import it")

import dl4all as dl  # noqa: E402
from lab.peer_databases import (  # noqa: E402
    functions,
    report,
    ties,
)
from lab.peer_databases.__main__ import DTYPES  # noqa: E402
from lab.peer_databases.child import DATABASES  # noqa: E402
from lab.peer_databases.operands import to_peer, to_torch  # noqa: E402
from lab.peer_databases.outcome import Outcome, brief  # noqa: E402
from lab.torch_databases import runs  # noqa: E402
from lab.torch_databases.comparison import Wrong, compare  # noqa: E402
from lab.torch_databases.runs import Run  # noqa: E402

CHILD = "lab.peer_databases.child"

EQUAL = [
    "add", "where", "sum", "var", "softmax", "matmul", "addmm", "cat", "gather",
    "scatter_reduce.amax", "quantile", "linalg.eigh",
    "zeros", "bernoulli", "as_strided.partial_views", "index_fill",
    "nn.functional.linear",
    "nn.functional.layer_norm", "nn.functional.embedding", "nn.functional.dropout",
]  # fmt: skip
"""Entries of which every call is equal, in each dtype that they take."""


def not_equal(device: str, dtype: str, names: list[str]) -> dict[str, Any]:
    run = Run("ops", device, dtype, child=CHILD)
    rows = runs.check(run, names, lambda row: None)
    assert all(row["samples"] for row in rows)
    return {row["name"]: row.get("reasons", row["why"]) for row in rows if row["status"] != "equal"}


def test_entries_are_equal() -> None:
    assert not_equal("cpu", "float32", EQUAL) == {}


@pytest.mark.full
def test_entries_of_integers_are_equal() -> None:
    whole = ["matmul", "scatter_reduce.mean", "index_fill", "logsumexp"]
    assert not_equal("cpu", "int64", whole) == {}


@pytest.mark.full
def test_entries_of_16_bits_are_equal() -> None:
    some = ["cov", "matrix_exp", "nn.functional.normalize", "nn.functional.poisson_nll_loss"]
    assert not_equal("cpu", "float16", some) == {}


@pytest.mark.full
@pytest.mark.vulkan
def test_entries_are_equal_on_a_device() -> None:
    assert not_equal("vulkan:0", "float32", ["softmax", "gather", "index_fill"]) == {}


def test_databases_are_those_of_the_child() -> None:
    assert set(DTYPES) == set(DATABASES)


def test_what_overflows_is_judged_by_float64() -> None:
    """A number is right where only PyTorch's overflows on its way, and an infinity where float64's is one."""
    expected = torch.tensor([torch.inf, 1.0], dtype=torch.float16)
    for precise, got, right in (
        ([7.6, 1.0], [7.6, 1.0], True),
        ([7.6, 1.0], [7.9, 1.0], False),
        ([7.6, 1.0], [torch.nan, 1.0], False),
        ([1e6, 1.0], [7.6, 1.0], False),
        ([7.6, 1e6], [7.6, torch.inf], True),
        ([7.6, 1.0], [7.6, torch.inf], False),
    ):
        found = torch.tensor(got, dtype=torch.float16)
        wide = torch.tensor(precise, dtype=torch.float64)
        with contextlib.nullcontext() if right else pytest.raises(Wrong):
            compare([expected], [found], "result", lambda wide=wide: [wide])  # type: ignore[misc]


def test_standins_go_through_functions_of_pytorch() -> None:
    x = torch.randn(5, 3)

    def function(value: Any, scale: float) -> Any:
        rows = torch.nn.functional.softmax(value * scale, dim=-1)
        return torch.where(rows > 0.25, rows, torch.zeros_like(rows)).sum(0)[1:]

    got = functions.call(function, (to_peer(x), (2.0,), {}))
    torch.testing.assert_close(to_torch(got), function(x, 2.0))


def test_what_of_a_result_is_determined_is_taken_of_both() -> None:
    """Vectors of opposite signs are as right."""

    def determined(result: Any) -> Any:
        values, vectors = result
        return values, abs(vectors[..., :1])

    x = torch.randn(3, 3)
    peer = to_peer(x + x.T)
    own = torch.linalg.eigh(x + x.T)
    flipped = type(dl.linalg.eigh(peer))(to_peer(own.eigenvalues), -to_peer(own.eigenvectors))
    got = to_torch(functions.applied(determined, flipped))
    for one, other in zip(got, determined(own), strict=True):
        torch.testing.assert_close(one, other)


def test_results_without_tensors_keep_their_kind() -> None:
    assert isinstance(to_torch(dl.zeros(2, 3).shape), torch.Size)
    assert to_torch((1, ["a", (2.5,)])) == (1, ["a", (2.5,)])


def test_what_dl4all_lacks_is_missing() -> None:
    with pytest.raises(functions.Missing, match=r"no dl4all\.special\.airy_ai"):
        functions.call(torch.special.airy_ai, (dl.ones(3), (), {}))
    with pytest.raises(functions.Missing, match="no public name"):
        functions.call(torch.masked.sum, (dl.ones(3), (), {}))


def test_operands_keep_their_layout_and_names() -> None:
    base = torch.arange(24).reshape(2, 3, 4)
    views = [base.permute(2, 0, 1), base[:, 1:, ::2], base[1], base[:, :0]]
    for view, peer in zip(views, to_peer(views), strict=True):
        assert (peer.shape, peer.tolist()) == (tuple(view.shape), view.tolist())
        assert not view.numel() or (peer.stride(), peer.storage_offset()) == (
            view.stride(),
            view.storage_offset(),
        )
    named = to_peer({"dtype": torch.bool, "device": "cpu", "generator": torch.Generator()})
    assert named["dtype"] == "bool"
    assert named["device"] == dl.ones(1).device
    assert isinstance(named["generator"], dl.Generator)
    with pytest.raises(TypeError, match="complex64"):
        to_peer(torch.ones(2, dtype=torch.complex64))


def test_indices_of_equal_elements_may_differ() -> None:
    x = torch.tensor([[3, 1, 3], [2, 2, 0]])
    values = torch.tensor([[3, 3, 1], [2, 2, 0]])
    operands: Any = (x, (-1, True), {})
    first, second, wrong = (
        ties.named_elements("sort", operands, [values, torch.tensor(indices)])
        for indices in ([[0, 2, 1], [0, 1, 2]], [[2, 0, 1], [1, 0, 2]], [[0, 0, 1], [0, 1, 2]])
    )
    assert all(map(torch.equal, first, second))
    assert not all(map(torch.equal, first, wrong))
    assert not ties.leaves_open("sort", {"stable": True})


def test_outcomes_are_counted_by_status() -> None:
    outcome = Outcome("add")
    for error in (None, Wrong("far off"), dl.errors.ShapeError("[add] (2, 3) and (5,)"), KeyError("x")):
        with outcome.judging("a sample"):
            if error is not None:
                raise error
    row = outcome.as_row()
    assert (row["status"], row["samples"]) == ("wrong", 4)
    assert row["counts"] == {"equal": 1, "wrong": 1, "refused": 1, "crashed": 1}
    crashed = {"name": "sub", "status": "crashed", "why": "signal 11", "samples": 0, "notes": {}}
    shown = report.text({"ops cpu float32": [row, crashed]})
    assert "| ops | cpu | float32 | 2 | 1 | 1 | 2 | 1 | 20.00% |" in shown
    assert "| sub | 0 | 1 | crashed: signal N |" in shown


def test_reasons_are_alike_without_their_numbers() -> None:
    first, second = (
        "refused: [add] shapes (2, 3) and (5,) for 0.5",
        "refused: [add] shapes (7,) and () for 1e-3",
    )
    assert brief(first) == brief(second)
