"""Each folder's share of a run: how many cases it may have, and a table of the seconds that it took.

A suite grows by products that nobody has looked at. So a usual run of everything ends before it begins where
a folder has more cases than its share: choose among them, or give it a larger one here, and say why.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.support.selection import AGAIN
from tests.support.subcases import FULL

SHARES = {
    "tests/ops": 13_150, "tests/functions": 850, "tests/host_kernels": 1_360, "tests/tensor": 2_100,
    "tests/graph": 1_850, "tests/nn": 1_400, "tests/pytorch": 1_300, "tests/docs": 1_500,
    "tests/runtime": 1_050, "tests/autograd": 900, "tests/optim": 950, "tests/scheduler": 720,
    "tests/multi_device": 760, "tests/io": 450, "tests/data": 390, "tests/training": 290,
    "tests/attacks": 200, "tests/lab": 220, "tests/cli": 280, "tests/distributions": 190,
    "tests/allocator": 130, "tests/suite": 50, "tests/benchmarks": 110, "tests/models": 110,
    "tests/amp": 210, "tests/quantization": 250, "tests/onnx": 130, "tests/distributed": 120,
    "tests/search": 180, "tests/meta": 60, "tests/automl": 120, "tests/llm": 300,
    "tests/serving": 320,  # most are malformed requests, of a millisecond each
    "tests/examples": 60, "tests/conformance": 25, "tests/typing": 30, "tests/utils": 30, "tests": 500,
    "dl4all/testing": 2_100,
}  # fmt: skip
"""The most cases of a usual run, by folder; ``tests`` are the files that lie there."""

LINES = 20

seconds: dict[str, float] = defaultdict(float)
tests: dict[str, int] = defaultdict(int)


def folder_of(nodeid: str) -> str:
    """The folder of a test's file, or the file where it lies in ``tests`` itself.

    >>> folder_of("tests/ops/conv/test_fft.py::test_one"), folder_of("tests/docs/test_docs.py::test_one")
    ('tests/ops/conv', 'tests/docs/test_docs.py')
    """
    file = Path(nodeid.partition("::")[0])
    folder = file.parent.as_posix()
    return file.as_posix() if folder == "tests" else folder


def excess(nodeids: Iterable[str]) -> dict[str, int]:
    """The folders that have more cases than their share, with how many; all of those without a share."""
    counts = Counter("/".join(nodeid.split("::")[0].split("/")[:-1][:2]) for nodeid in nodeids)
    return {folder: count for folder, count in counts.items() if count > SHARES.get(folder, 0)}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Hold the shares in a usual run of everything."""
    everything = {Path(path).name for path in session.config.args} >= {"tests", "testing"}
    if everything and not FULL and not AGAIN and not session.config.option.keyword:
        found = excess(item.nodeid for item in session.items)
        if found:
            session.shouldfail = f"more cases than their shares in {__name__}: {found}"
            raise pytest.UsageError(session.shouldfail)  # which a process that starts others would not see


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up set-up, call and tear-down; in the process that starts the others, those of all."""
    folder = folder_of(report.nodeid)
    seconds[folder] += report.duration
    tests[folder] += report.when == "call"


def table(spent: Mapping[str, float], counted: Mapping[str, int]) -> list[str]:
    """The lines of the table, the longest first, and the rest together."""
    ordered = sorted(spent, key=lambda folder: -spent[folder])
    rest = ordered[LINES:]
    lines = [f"{spent[folder]:8.1f} s {counted[folder]:6} tests  {folder}" for folder in ordered[:LINES]]
    if rest:
        total, count = (sum(column[folder] for folder in rest) for column in (spent, counted))
        lines.append(f"{total:8.1f} s {count:6} tests  {len(rest)} others")
    return lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if sum(tests.values()) > LINES:
        for line in table(seconds, tests):
            terminalreporter.write_line(line)
