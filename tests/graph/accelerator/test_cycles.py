"""The clock: against an array that is simulated cycle by cycle, SCALE-Sim's formulas, and by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.graph.accelerator.model import ArrayWork, array_cycles
from dl4all.graph.accelerator.report import AcceleratorReport
from dl4all.graph.op_codes.assembler import parse
from dl4all.nn import functional as F

Floats = npt.NDArray[np.float64]


def systolic_product(a: Floats, b: Floats) -> tuple[Floats, int]:
    """An output-stationary array, one multiply-add of each element in a cycle: the product, and the cycles.

    Rows of `a` come in from the left and columns of `b` from the top, each one cycle later than the one
    before. When the last sum is done the array shifts its results out downwards, a row in each cycle.
    """
    rows, depth = a.shape
    columns = b.shape[1]
    left, top, sums = (np.zeros((rows, columns)) for _ in range(3))
    cycles = 0
    for cycle in range(rows + columns + depth - 2):
        left[:, 1:], top[1:] = left[:, :-1].copy(), top[:-1].copy()
        for row in range(rows):
            at = cycle - row
            left[row, 0] = a[row, at] if 0 <= at < depth else 0
        for column in range(columns):
            at = cycle - column
            top[0, column] = b[at, column] if 0 <= at < depth else 0
        sums += left * top
        cycles += 1
    return sums, cycles + rows


def stationary_product(a: Floats, b: Floats) -> tuple[Floats, int]:
    """An array that holds `b`: its rows come in first, one in each cycle; then `a` streams through."""
    steps, depth = a.shape
    columns = b.shape[1]
    moving, sums = np.zeros((depth, columns)), np.zeros((depth, columns))
    found = np.zeros((steps, columns))
    cycles = depth  # the weights come in, a row in each cycle
    for cycle in range(depth + columns + steps - 2):
        moving[:, 1:] = moving[:, :-1].copy()
        for row in range(depth):
            at = cycle - row
            moving[row, 0] = a[at, row] if 0 <= at < steps else 0
        sums[1:] = sums[:-1].copy()
        sums[0] = 0
        sums += moving * b
        for column in range(columns):
            at = cycle - (depth - 1) - column
            if 0 <= at < steps:
                found[at, column] = sums[depth - 1, column]
        cycles += 1
    return found, cycles


@pytest.mark.parametrize(("rows", "columns", "depth"), [(4, 4, 9), (3, 5, 1), (8, 2, 17), (1, 1, 5)])
def test_a_fold_takes_as_long_as_an_array_that_is_simulated(rows: int, columns: int, depth: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((rows, depth)), rng.standard_normal((depth, columns))
    product, cycles = systolic_product(a, b)
    np.testing.assert_allclose(product, a @ b)
    assert cycles == array_cycles(ArrayWork(1, rows, columns, depth), (rows, columns), "os")
    product, cycles = stationary_product(a, b)
    np.testing.assert_allclose(product, a @ b)
    assert cycles == array_cycles(ArrayWork(1, rows, columns, depth), (depth, columns), "ws")
    _, cycles = stationary_product(b.T, a.T)
    assert cycles == array_cycles(ArrayWork(1, rows, columns, depth), (depth, rows), "is")


CONVOLUTIONS = [  # channels, filters, kernel, stride, padding, height
    (3, 64, 7, 2, 3, 224), (64, 64, 3, 1, 1, 56), (64, 128, 3, 2, 1, 56), (128, 128, 3, 1, 1, 28),
    (64, 128, 1, 2, 0, 56), (128, 256, 3, 2, 1, 28), (256, 256, 3, 1, 1, 14), (256, 512, 3, 2, 1, 14),
    (512, 512, 3, 1, 1, 7), (256, 64, 1, 1, 0, 56), (64, 256, 1, 1, 0, 56), (512, 2048, 1, 1, 0, 7),
    (32, 48, 5, 1, 2, 27), (96, 208, 3, 1, 1, 14), (480, 192, 1, 1, 0, 14),
]  # fmt: skip
PRODUCTS = [(128, 768, 768), (128, 768, 3072), (197, 768, 2304), (1, 4096, 1000), (1024, 64, 1024)]


def scale_sim(rows: int, columns: int, depth: int, array: tuple[int, int], dataflow: str) -> int:
    """SCALE-Sim's runtime of a layer: equations 3 and 4 of its paper, with the mapping of table II."""
    along_rows, along_columns, time = {
        "os": (rows, columns, depth), "ws": (depth, columns, rows), "is": (depth, rows, columns),
    }[dataflow]  # fmt: skip
    folds = math.ceil(along_rows / array[0]) * math.ceil(along_columns / array[1])
    return folds * (2 * array[0] + array[1] + time - 2)


def layers() -> list[tuple[Any, tuple[dl.Tensor, ...], tuple[int, int, int]]]:
    """Twenty layers: a function, its tensors, and pixels, filters and the length of a window."""
    found: list[tuple[Any, tuple[dl.Tensor, ...], tuple[int, int, int]]] = []
    for channels, filters, kernel, stride, padding, height in CONVOLUTIONS:
        x, weight = dl.zeros(1, channels, height, height), dl.zeros(filters, channels, kernel, kernel)
        pixels = ((height + 2 * padding - kernel) // stride + 1) ** 2
        found.append(
            (lambda x, w, s=stride, p=padding: F.conv2d(x, w, stride=s, padding=p), (x, weight),
             (pixels, filters, channels * kernel * kernel))
        )  # fmt: skip
    for rows, depth, columns in PRODUCTS:
        found.append((F.linear, (dl.zeros(rows, depth), dl.zeros(columns, depth)), (rows, columns, depth)))
    return found


def timed(call: Any, tensors: tuple[dl.Tensor, ...], **sizes: Any) -> AcceleratorReport:
    return dl.accelerator_model(dram=1e15, **sizes).compile(call, *tensors).report()


def test_twenty_layers_against_the_formulas_of_scale_sim() -> None:
    """All cycles of a program that is cut into tiles, for a DRAM that never lets it wait."""
    for call, tensors, work in layers():
        expected = scale_sim(*work, (16, 16), "os")
        assert timed(call, tensors).cycles == pytest.approx(expected, rel=0.02), work


@pytest.mark.parametrize("dataflow", ["os", "ws", "is"])
@pytest.mark.parametrize("array", [(16, 16), (8, 24), (32, 32)])
def test_the_cycles_of_the_array_where_nothing_is_cut(array: tuple[int, int], dataflow: Any) -> None:
    for call, tensors, work in layers():
        report = timed(call, tensors, array=array, dataflow=dataflow, scratchpad=256 << 20)
        assert report.busy["array"] == scale_sim(*work, array, dataflow), work


PROGRAM = """
scratchpad: @4096 [4096]
r0: @0 [32, 32] + [0, 1024]
r1: @4096 [32, 32]
r2: @5120 [32, 32]
r3: @2048 [32, 32] + [0, 1024]
loop i1, 2
copy r1, r0
exp r2, r1
copy r3, r2
end i1
"""


def test_a_program_by_hand() -> None:
    """4,096 bytes at 32 a cycle; 64 rounds of 16 lanes, four passes each; and the latencies of both units."""
    model = dl.accelerator_model(dram=32e9, lanes=16)
    report = model.time(parse(PROGRAM))
    copy, exp = 4096 // 32, 4 * 1024 // 16
    assert report.busy == {"array": 0, "vector": 2 * exp, "dma": 4 * copy}
    assert report.cycles == 2 * (copy + 100 + exp + 8 + copy) + 100  # the DMA takes its copies in order
    assert report.dram_bytes == 4 * 4096
    assert report.energy["dram"] == 4 * 1024 * 640


def test_two_places_let_copies_and_computing_overlap() -> None:
    x = dl.zeros(256, 1024)
    report = dl.accelerator_model(scratchpad=64 << 10).compile(lambda x: x.exp(), x).report()
    serial = sum(report.busy.values())
    assert report.cycles < 0.85 * serial
    assert report.cycles == pytest.approx(report.busy["dma"], rel=0.1)


def test_more_of_anything_is_never_slower() -> None:
    network = dl.models.LeNet(10).eval()
    x = dl.zeros(4, 1, 28, 28)

    def cycles(**sizes: Any) -> int:
        return dl.accelerator_model(**sizes).compile(network, x).report().cycles

    usual = cycles()
    assert cycles(dram=51.2e9) <= usual
    assert cycles(lanes=64) <= usual
    assert cycles(scratchpad=4 << 20) <= 1.02 * usual
    assert cycles(dram=1e9) > usual


def test_jumps_have_no_time() -> None:
    with pytest.raises(dl.errors.ArgumentError, match="the time of a program that jumps depends on data"):
        dl.accelerator_model().time(parse("scratchpad: @16 [16]\nr0: @16 [1]\njump r0, 0"))


def test_the_report_as_numbers() -> None:
    report = dl.accelerator_model().compile(dl.nn.Linear(64, 64), dl.zeros(64, 64)).report()
    found = report.as_dict()
    assert set(found["utilisation"]) == {"array", "vector", "dma"}
    assert found["cycles"] == report.cycles
    assert found["bytes"] == 3 * 64 * 64 * 4 + 64 * 4
    assert found["roofline"]["intensity"] == pytest.approx(64**3 / found["bytes"])
    assert found["roofline"]["achieved"] <= found["roofline"]["attainable"]
    assert 0 < report.efficiency < 1
    assert report.seconds == pytest.approx(report.cycles * 1e-9)
