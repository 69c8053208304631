"""The benchmark against other libraries: its cases, and the conversation with peers that need no network."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from benchmarks.peers import measure as measuring
from benchmarks.peers.cases import CASES, TOLERANCE, Case, error, inputs, product
from benchmarks.peers.child import Child, PeerError
from benchmarks.peers.environment import PEERS, Peer
from benchmarks.peers.measure import Entrant, measure

SMALL = (Case("product", (5, 7), (7, 3)), Case("convolution", (1, 3, 7, 6), (5, 3, 3, 3), 2))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "PAUSE", 0.0)


def test_cases_are_well_formed() -> None:
    for name, case in CASES.items():
        assert name == case.name
        assert len(case.x) == len(case.w) == (4 if case.is_convolution else 2)
        assert case.x[1] == case.w[1 if case.is_convolution else 0]
        assert case.flop > 0
    convolutions = [case for case in CASES.values() if case.is_convolution]
    assert [case.output[1:] for case in convolutions] == [
        (64, 56, 56),
        (128, 28, 28),
        (128, 28, 28),
        (256, 14, 14),
        (256, 14, 14),
        (512, 7, 7),
        (512, 7, 7),
    ]


@pytest.mark.parametrize("stride", [1, 2])
def test_reference_is_a_convolution(stride: int) -> None:
    case = Case("small", (1, 3, 7, 6), (5, 3, 3, 3), stride)
    x, w = inputs(case)
    padded = np.pad(x[0], ((0, 0), (1, 1), (1, 1)))
    expected = np.empty(case.output, np.float32)
    for _, filters, row, column in np.ndindex(case.output):
        corner = padded[:, row * stride : row * stride + 3, column * stride : column * stride + 3]
        expected[0, filters, row, column] = (corner * w[filters]).sum()
    np.testing.assert_allclose(product(case, x, w), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_error_sees_one_wrong_value(case: Case) -> None:
    x, w = inputs(case)
    assert error(case, product(case, x, w)) < 1e-6
    coarse = product(case, x, w).copy()
    coarse.flat[0] += 2 * TOLERANCE * np.abs(coarse).max()
    assert error(case, coarse) > TOLERANCE


@pytest.mark.slow
def test_measure_dl4all_beside_numpy() -> None:
    found = measure([Entrant(name, name, {}) for name in ("dl4all-cpu", "numpy")], SMALL, 2)
    assert set(found["cases"]) == {case.name for case in SMALL}
    for row in found["cases"].values():
        for name in ("dl4all-cpu", "numpy"):
            assert row[name]["error"] < 1e-5
            assert row[name]["seconds"] > row[name]["resident"] > 0


def test_a_wrong_answer_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "TOLERANCE", -1.0)
    found = measure([Entrant("numpy", "numpy", {})], SMALL[:1], 1)
    assert found["cases"]["product"]["numpy"]["failed"].startswith("wrong by")


def test_failures_have_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PEERS, "absent", Peer("absent_peer"))
    wrong = Case("wrong", (2, 3), (4, 5))
    found = measure([Entrant(name, name, {}) for name in ("absent", "numpy")], (wrong, SMALL[0]), 1)
    assert "absent_peer" in found["peers"]["absent"]["failed"]
    assert "ValueError" in found["cases"]["wrong"]["numpy"]["failed"]
    assert found["cases"]["product"]["numpy"]["error"] < 1e-5


def test_a_dead_peer_starts_again() -> None:
    with Child("numpy") as child:
        child.prepare(SMALL[0])
        child.process.kill()
        child.process.wait()
        with pytest.raises(PeerError, match="exit status"):
            child.ask({"do": "run"})
        child.prepare(SMALL[0])
        assert child.ask({"do": "run"})["seconds"] > 0


def test_packages_of_peers_are_pinned() -> None:
    assert all(need == "numpy" or "==" in need for peer in PEERS.values() for need in peer.requirements)
    assert "ncnn" not in sys.modules
