"""The predicted cost of one op against what a simulated device takes."""

from __future__ import annotations

from typing import Any

import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError
from dl4all.multi_device.op_cost import op_seconds, op_work
from dl4all.ops.reduce import softmax_function
from dl4all.scheduler.cost_model import speeds
from dl4all.scheduler.simulation import simulated_device


@pytest.mark.parametrize(
    ("op", "shapes", "arguments"),
    [
        (dl.ops.matmul, [(7, 5), (5, 9)], {}),
        (dl.ops.add, [(7, 1), (1, 9)], {}),
        (dl.ops.conv2d, [(2, 3, 8, 8), (4, 3, 3, 3)], {"padding": 1}),
        (softmax_function.softmax, [(6, 5)], {"dim": 1}),
    ],
)
def test_a_simulated_device_takes_what_is_predicted(op: Any, shapes: Any, arguments: Any) -> None:
    device = simulated_device(gflops=3.0, gb_per_s=2.0, launch_us=7.0)
    assert device.simulated is not None
    operands = [dl.rand(*shape, device="cpu") for shape in shapes]
    moved = [operand.to(device) for operand in operands]
    before = device.simulated.busy
    op(*moved, **arguments)
    taken = device.simulated.busy - before
    assert op_seconds(op, device, *operands, **arguments) == pytest.approx(taken)
    assert op_work(op, *moved, **arguments).seconds(speeds(device)) == pytest.approx(taken)
    assert taken > 7e-6


def test_wrong_operands_are_the_ops_own_error() -> None:
    with pytest.raises(ShapeError, match="matmul"):
        op_work(dl.ops.matmul, dl.zeros(2, 3, device="cpu"), dl.zeros(2, 3, device="cpu"))


def test_functions_of_several_ops_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"\[op_work\] expected an op"):
        op_work(dl.nn.functional.batch_norm, dl.zeros(2, 3, device="cpu"))
