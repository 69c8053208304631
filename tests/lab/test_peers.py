"""The benchmark against other libraries: its cases, and the conversation with peers that need no network."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import dl4all as dl
from lab.peers import measure as measuring
from lab.peers import resnet18
from lab.peers.cases import CASES, TOLERANCE, Case, error, inputs, product
from lab.peers.check_device import shared_out, ticks_of
from lab.peers.child import Child, PeerError
from lab.peers.environment import PEERS, Peer
from lab.peers.measure import Entrant, Limits, Report, measure
from lab.peers.tables import Lines, cell, ratios, times_longer

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


def test_a_slow_peer_gets_two_runs() -> None:
    found = measure([Entrant("numpy", "numpy", {})], SMALL[:1], 50, limits=Limits(runs=0.0))
    assert found["cases"]["product"]["numpy"]["runs"] == 1  # and one before, which is not counted


@pytest.mark.skipif(sys.platform == "win32", reason="processes cannot be stopped there")
def test_a_peer_without_an_answer_is_left_out_of_one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = Child.prepare

    def stop(child: Child, case: Case) -> None:
        child.seconds = 60.0
        prepare(child, case)
        if case.name == "product":
            child.process.send_signal(signal.SIGSTOP)
            child.seconds = 0.1

    monkeypatch.setattr(Child, "prepare", stop)
    found = measure([Entrant("numpy", "numpy", {})], SMALL, 1)
    assert found["cases"]["product"]["numpy"]["failed"] == "no answer in 0.1 s"
    assert found["cases"]["convolution"]["numpy"]["runs"] == 1


def test_cases_are_told_and_kept_as_they_come(tmp_path: Path) -> None:
    said, file = io.StringIO(), tmp_path / "peers.json"
    lines = Lines(Console(file=said), cell, 2, file)

    def interrupted(report: Report) -> None:
        lines(report)
        if report["cases"]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure([Entrant("numpy", "numpy", {})], SMALL, 1, tell=interrupted)
    first, second, third = said.getvalue().splitlines()
    assert first.startswith("numpy: numpy ")
    assert second.startswith("product: numpy ")
    assert third.strip() == "numpy is slow: 1 instead of 2 runs"
    assert json.loads(file.read_text()) == lines.report
    assert list(lines.report["cases"]) == ["product"]


def test_ratios_are_of_what_both_computed() -> None:
    right, wrong = {"seconds": 2.0, "fastest": 1.0}, {"failed": "wrong"}
    rows: list[Report] = [
        {"dl4all-vulkan": right, "ncnn": {"seconds": 6.0, "fastest": 5.0}},
        {"dl4all-vulkan": right, "ncnn": wrong},
    ]
    assert times_longer(rows, "ncnn", count=True) == "3.00, 5.00 (1)"
    assert times_longer(rows[1:], "ncnn") == "-"
    table = ratios(dict(zip(("conv-64-64-56", "conv-512-512-7"), rows, strict=True)), ["ncnn"])
    assert list(table.columns[2].cells) == ["3.00 (ncnn)", "-", ""]


def test_threads_that_compute_follow_those_that_draw() -> None:
    stat = "77 (a (b) c) S 1 2 3 0 -1 4194304 19278 1160 10 0 64 10 1 0 20 0 8 0"
    assert ticks_of(stat) == ("a (b) c", 74)
    assert shared_out([("python", 8), ("llvmpipe-0", 0), ("llvmpipe-1", 1), ("python", 5)]) == (6, 8)
    threads = [("python", 8), ("llvmpipe-0", 2), ("python", 5), ("python:disk$0", 3)]
    assert shared_out(threads) == (7, 11)
    assert shared_out([("python", 8), ("python", 5)]) == (0, 13)


def test_a_dead_peer_starts_again() -> None:
    with Child("numpy") as child:
        child.prepare(SMALL[0])
        child.process.kill()
        child.process.wait()
        with pytest.raises(PeerError, match="exit status"):
            child.ask({"do": "run"})
        child.prepare(SMALL[0])
        assert child.ask({"do": "run"})["seconds"] > 0


def test_weights_and_scores_travel_between_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Callable[[dict[str, Any]], dict[str, object]]] = []
    monkeypatch.setattr(resnet18, "converse", lambda about, device, answer: answers.append(answer))
    rng = np.random.default_rng(0)
    weights = {"fc.weight": rng.standard_normal((resnet18.CLASSES, 6), np.float32)}
    images = rng.standard_normal((2, 6), np.float32)
    resnet18.serve_network("matrix", "processor", lambda w, x: lambda: x @ w["fc.weight"].T)

    class Pipe:
        def ask(self, question: dict[str, Any]) -> Any:
            return json.loads(json.dumps(answers[0](json.loads(json.dumps(question)))))

    run = resnet18.asked(Pipe(), weights, images)
    np.testing.assert_array_equal(run(), images @ weights["fc.weight"].T)


def test_blocks_are_those_of_the_model() -> None:
    names = set(dl.models.resnet18(base_channels=2).state_dict())
    found = [name for name, _ in resnet18.blocks()]
    assert {f"{name}.conv1.weight" for name in found} == {n for n in names if n.endswith(".conv1.weight")}


def test_packages_of_peers_are_pinned() -> None:
    assert all(need == "numpy" or "==" in need for peer in PEERS.values() for need in peer.requirements)
    assert "ncnn" not in sys.modules
