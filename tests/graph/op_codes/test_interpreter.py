"""The interpreter's shader against the simulator, and that against NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.graph.op_codes.assembler import assemble
from dl4all.graph.op_codes.instruction import program_of
from dl4all.graph.op_codes.interpreter import (
    INTERPRETERS,
    VARIANTS,
    InterpreterVariant,
    launch_of,
    variant_for,
)
from dl4all.graph.op_codes.opcode import OPCODES, Opcode
from dl4all.graph.op_codes.simulator import run, steps
from dl4all.runtime import spirv
from tests.conftest import need

Floats = npt.NDArray[np.float32]
ARENA = 4096
POSITIVE = ("log", "log1p", "sqrt", "rsqrt", "pow")
SHAPES = ((1,), (7,), (5, 13), (2, 3, 5, 7), (131,), (1, 257))


def _draw(count: int, seed: int = 0) -> Floats:
    values = np.random.default_rng(seed).uniform(0.1, 3, count).astype(np.float32)
    values[1::3] *= -1
    return values


def run_on_device(
    text: str,
    arena: Floats,
    buffers: list[Floats],
    parameters: tuple[float, ...],
    variant: InterpreterVariant,
) -> tuple[Floats, list[Floats]]:
    """The arena and the buffers when the shader has run the program."""
    device = dl.device("vulkan:0")
    words = assemble(text)
    outside = [*buffers, *[np.zeros(1, np.float32)] * (variant.buffers - len(buffers))]
    storages = [device.upload(array) for array in (words, arena, *outside)]
    launch = launch_of(variant, 0, len(program_of(words).instructions), parameters)
    device.launch(launch, *storages)
    found = []
    for storage, array in zip(storages[1:], (arena, *outside), strict=True):
        found.append(np.empty_like(array))
        device.download(storage, found[-1])
    return found[0], found[1 : 1 + len(buffers)]


def check(
    text: str,
    arena: Floats,
    buffers: tuple[Floats, ...] = (),
    parameters: tuple[float, ...] = (),
    *,
    rtol: float = 2e-6,
) -> Floats:
    """Compare every interpreter with the simulator; returns the arena."""
    need("vulkan:0")
    expected, outside = arena.copy(), [buffer.copy() for buffer in buffers]
    run(assemble(text), expected, outside, parameters)
    for variant in VARIANTS:
        if variant.buffers > dl.device("vulkan:0").info.limits.storage_buffers - 2:
            continue
        got, changed = run_on_device(text, arena, list(buffers), parameters, variant)
        np.testing.assert_allclose(got, expected, rtol, 2e-6, err_msg=str(variant))
        for one, other in zip(changed, outside, strict=True):
            np.testing.assert_allclose(one, other, rtol, 2e-6, err_msg=str(variant))
    return expected


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_what_the_shader_asks_of_a_device(variant: InterpreterVariant) -> None:
    interface = spirv.load(INTERPRETERS[variant]).interface
    assert len(interface.bindings) == 2 + variant.buffers
    assert interface.push_bytes == 128
    assert interface.shared_bytes <= 16384
    assert interface.local_size == (variant.invocations, 1, 1)


def test_the_interpreter_of_a_device() -> None:
    need("vulkan:0")
    info = dl.device("vulkan:0").info
    variant = variant_for(info)
    assert variant.buffers == (6 if info.limits.storage_buffers >= 8 else 2)
    assert variant.invocations == (8 if info.type == "software" else 128)


ELEMENTWISE = [code for code in OPCODES if code.kind in ("arithmetic", "function")]


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_elementwise_op_code(shape: tuple[int, ...]) -> None:
    n = int(np.prod(shape))
    lines = [f"r{k}: @{k * n} {list(shape)}" for k in range(4)]
    arena = _draw(4 * n)
    if n > 3:
        arena[[0, n, 2 * n, 2]] = 0
    for code in ELEMENTWISE:
        operands = ", ".join(f"r{position}" for position in range(code.operands))
        drawn = np.abs(arena) if code.name in POSITIVE else arena
        check("\n".join([*lines, f"{code.name} r3, {operands}"]), drawn)


@pytest.mark.vulkan
@pytest.mark.parametrize(
    "code", [code for code in ELEMENTWISE if code.operands > 1], ids=lambda code: code.name
)
def test_operands_that_repeat_are_transposed_or_numbers(code: Opcode) -> None:
    arena = np.abs(_draw(300))
    head = "r0: @0 [5, 13]\nr1: @70 [13]\nr2: @100 [5, 1]\nr3: @120 [5, 13] / [1, 5]\nr4: @200 [5, 13]\n"
    head += "r5: @200 [13, 5] / [1, 13]\nr6: @0 [13, 5]\nr7: @280 []\n"
    rest = ", r2" if code.operands == 3 else ""
    for operands in ("r1, r3", "r3, #0.5", "#2.0, r0", "p3, r0", "r2, p1", "r7, r0", "#0.5, p2"):
        check(f"{head}{code.name} r4, {operands}{rest}", arena, parameters=(0.25, 1.5, 2.0, 0.75))
    check(f"{head}{code.name} r5, r6, r7{', #3.0' if rest else ''}", arena)


@pytest.mark.vulkan
@pytest.mark.parametrize("name", ["row_sum", "row_mean", "row_max"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (131, 3), (1, 1009), (2, 3, 5, 17), (5, 130)], ids=str)
def test_reductions(name: str, shape: tuple[int, ...]) -> None:
    n = int(np.prod(shape))
    result = n + np.prod(shape[:-1], dtype=int)
    head = f"r0: @0 {list(shape)}\nr1: @{n} {[*shape[:-1], 1]}\n"
    arena = check(f"{head}{name} r1, r0", _draw(result), rtol=1e-5)
    rows = arena[:n].reshape(shape)
    expected = {"row_sum": rows.sum(-1), "row_mean": rows.mean(-1), "row_max": rows.max(-1)}[name]
    np.testing.assert_allclose(arena[n:], expected.reshape(-1), 1e-5, 1e-6)
    turned = f"r0: @0 [{shape[-2]}, {shape[-1]}] / [1, {shape[-2]}]\nr1: @{n} [{shape[-2]}, 1]\n"
    check(f"{turned}{name} r1, r0", _draw(result), rtol=1e-5)


@pytest.mark.vulkan
def test_the_largest_of_a_row_with_a_nan_is_nan() -> None:
    arena = _draw(24)
    arena[9] = np.nan
    arena = check("r0: @0 [3, 7]\nr1: @21 [3, 1]\nrow_max r1, r0", arena)
    assert np.isnan(arena[21:]).tolist() == [False, True, False]


@pytest.mark.vulkan
@pytest.mark.parametrize("rows", [1, 5, 17])
@pytest.mark.parametrize("depth", [1, 7, 33])
@pytest.mark.parametrize("columns", [1, 16, 19])
def test_matmul(rows: int, depth: int, columns: int) -> None:
    a, b, y = 0, rows * depth, rows * depth + depth * columns
    c = y + rows * columns
    head = f"r0: @{a} [{rows}, {depth}]\nr1: @{b} [{depth}, {columns}]\nr2: @{y} [{rows}, {columns}]\n"
    head += f"r3: @{c} [{columns}]\nr4: @{a} [{rows}, {depth}] / [1, {rows}]\n"
    head += f"r5: @{b} [{depth}, {columns}] / [1, {depth}]\nr6: @{y} [{rows}, {columns}] / [1, {rows}]\n"
    arena = _draw(c + columns)
    found = check(f"{head}matmul r2, r0, r1", arena, rtol=1e-5)
    expected = arena[:b].reshape(rows, depth) @ arena[b:y].reshape(depth, columns)
    np.testing.assert_allclose(found[y:c].reshape(rows, columns), expected, 1e-5, 1e-5)
    for instruction in ("matmul r2, r4, r5, r3", "matmul r6, r4, r1, r6", "matmul r2, r0, r5, #0.5"):
        check(head + instruction, arena, rtol=1e-5)


@pytest.mark.vulkan
def test_matmul_of_a_batch() -> None:
    head = "r0: @0 [2, 3, 5, 7]\nr1: @210 [2, 1, 7, 3]\nr2: @260 [2, 3, 5, 3]\n"
    check(f"{head}matmul r2, r0, r1", _draw(400), rtol=1e-5)


@pytest.mark.vulkan
def test_rows_by_index() -> None:
    arena = _draw(200)
    arena[100:105] = np.array([2, -1, 0, 6, 2], np.int32).view(np.float32)
    arena = check("r0: @0 [7, 13]\nr1: @100 [5]\nr2: @110 [5, 13]\ntake_rows r2, r0, r1", arena)
    np.testing.assert_array_equal(arena[110:123], arena[26:39])
    np.testing.assert_array_equal(arena[123:136], 0)
    arena = check("r0: @100 [5]\nr1: @110 [5, 7]\none_hot r1, r0", arena)
    expected = np.arange(7) == np.array([[2], [-1], [0], [6], [2]])
    np.testing.assert_array_equal(arena[110:145].reshape(5, 7), expected)


@pytest.mark.vulkan
def test_transfers_and_waits() -> None:
    """A chain in which each instruction reads what other invocations have written."""
    text = """
    r0: @0 [9, 31]
    r1: @300 [31, 9]
    r2: @0 [31, 9] / [1, 31]
    r3: @600 [9, 31]
    r4: @300 [9, 31] / [1, 9]
    load r0, b1+3
    wait mul r1, r2, #2.0
    wait add r3, r4, r0
    wait mul r0, r3, p0
    wait store r0, b0+5
    wait add r0, r3, #1.0
    """
    source, target = _draw(300), np.zeros(300, np.float32)
    need("vulkan:0")
    for variant in VARIANTS:
        if variant.buffers <= dl.device("vulkan:0").info.limits.storage_buffers - 2:
            _, changed = run_on_device(text, np.zeros(ARENA, np.float32), [target, source], (0.5,), variant)
            np.testing.assert_allclose(changed[0][5:284], 1.5 * source[3:282], 1e-6)
            np.testing.assert_array_equal(np.delete(changed[0], np.s_[5:284]), 0)
            np.testing.assert_array_equal(changed[1], source)


def test_a_trace_shows_what_each_instruction_does() -> None:
    arena = np.array([1, 2, 3, 4, 0, 0, 0, 0], np.float32)
    text = "r0: @0 [2, 2]\nr1: @4 [2, 2]\nr2: @0 [2, 2] / [1, 2]\nadd r1, r0, #1.0\nwait matmul r1, r1, r2"
    trace = list(steps(assemble(text), arena))
    assert [step.text for step in trace] == ["add r1, r0, #1.0", "wait matmul r1, r1, r2"]
    np.testing.assert_array_equal(trace[0].result, [[2, 3], [4, 5]])
    np.testing.assert_array_equal(trace[1].operands[0][0, 0], [[2, 3], [4, 5]])
    np.testing.assert_array_equal(trace[1].result, [[8, 18], [14, 32]])
