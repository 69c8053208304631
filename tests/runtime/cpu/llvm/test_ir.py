"""Code that the writer of LLVM IR writes computes what it says, for vectors of every width."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dl4all.errors import ShaderError
from dl4all.runtime.cpu.llvm import provider, target
from dl4all.runtime.cpu.llvm.compiler import HeldFunction
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import constant, lanes_of, vector

pytestmark = pytest.mark.skipif(target.binding() is None, reason="llvmlite is missing")
NDArray = npt.NDArray[Any]


def run(write: Callable[[Code], None], *slots: int | float | NDArray) -> None:
    """Compile a kernel whose body `write` writes, and run it."""
    module = IrModule()
    with module.kernel("kernel") as code:
        write(code)
    function = HeldFunction(provider.compiler().functions(module.text, ("kernel",))["kernel"])
    values = [slot.ctypes.data if isinstance(slot, np.ndarray) else slot for slot in slots]
    function(struct.pack(f"<{''.join('d' if isinstance(v, float) else 'q' for v in values)}", *values))


def apply(
    function: Callable[[Code, IrValue, IrValue], IrValue], a: NDArray, b: NDArray, result: str
) -> NDArray:
    """A function of two vectors, as an array of the result's LLVM type."""
    types = {"float": np.float32, "i32": np.int32, "i8": np.int8, "double": np.float64, "i64": np.int64}
    source = {np.dtype(numpy): llvm for llvm, numpy in types.items()}[a.dtype]
    out = np.full(a.size, 77, types[result])

    def write(code: Code) -> None:
        type = vector(source, a.size)
        value = function(
            code, code.load(code.slot(0, "ptr"), 0, type), code.load(code.slot(1, "ptr"), 0, type)
        )
        if value.type.endswith("i1>") or value.type == "i1":
            value = code.convert(value, result)
        code.store(value, code.slot(2, "ptr"), 0)

    run(write, a, b, out)
    return out


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("name", ["+", "-", "*", "/"])
def test_arithmetic_of_floats(name: str, lanes: int) -> None:
    a, b = np.random.default_rng(lanes).standard_normal((2, lanes)).astype(np.float32)
    functions: dict[str, Callable[[Code, IrValue, IrValue], IrValue]] = {
        "+": lambda _, x, y: x + y, "-": lambda _, x, y: x - y,
        "*": lambda _, x, y: x * y, "/": lambda _, x, y: x / y,
    }  # fmt: skip
    theirs: dict[str, Any] = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
    np.testing.assert_array_equal(apply(functions[name], a, b, "float"), theirs[name](a, b))


def test_arithmetic_of_integers() -> None:
    a = np.array([7, -7, 2**31 - 1, 0, -5, 12, 1, -1], np.int32)
    b = np.array([3, 3, 1, 5, -2, 4, 31, 2], np.int32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(apply(lambda _, x, y: x + y, a, b, "i32"), a + b)
        np.testing.assert_array_equal(apply(lambda _, x, y: x * y - 3, a, b, "i32"), a * b - 3)
    np.testing.assert_array_equal(
        apply(lambda _, x, y: x // y, a, b, "i32"), np.trunc(a / b).astype(np.int32)
    )
    np.testing.assert_array_equal(apply(lambda _, x, y: x % y, a, b, "i32"), np.fmod(a, b))
    np.testing.assert_array_equal(apply(lambda _, x, y: (x & y) | (x ^ y), a, b, "i32"), a | b)
    np.testing.assert_array_equal(apply(lambda _, x, y: ~x, a, b, "i32"), ~a)
    np.testing.assert_array_equal(apply(lambda _, x, y: -x >> 1, a, b, "i32"), -a >> 1)


@pytest.mark.parametrize("name", ["<", "<=", ">", ">=", "equals", "differs"])
def test_comparisons_with_nan(name: str) -> None:
    a = np.array([1, 2, np.nan, np.inf, -0.0, -np.inf, 3, np.nan], np.float32)
    b = np.array([2, 1, 1, np.inf, 0.0, np.inf, 3, np.nan], np.float32)
    ours: dict[str, Callable[[Code, IrValue, IrValue], IrValue]] = {
        "<": lambda _, x, y: x < y, "<=": lambda _, x, y: x <= y, ">": lambda _, x, y: x > y,
        ">=": lambda _, x, y: x >= y, "equals": lambda _, x, y: x.equals(y),
        "differs": lambda _, x, y: x.differs(y),
    }  # fmt: skip
    theirs: dict[str, Any] = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
              "equals": np.equal, "differs": np.not_equal}  # fmt: skip
    np.testing.assert_array_equal(apply(ours[name], a, b, "i8"), theirs[name](a, b))


def test_numbers_are_constants_of_the_other_operands_type() -> None:
    a = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(apply(lambda _, x, y: 1 - 2 * x, a, a, "float"), 1 - 2 * a)
    assert constant("float", 0.1) == f"0x{struct.unpack('<Q', struct.pack('<d', np.float32(0.1)))[0]:016X}"
    assert constant("<4 x double>", math.inf) == "splat (double 0x7FF0000000000000)"
    assert lanes_of("<16 x half>") == 16
    assert lanes_of("ptr") == 1


def test_conversions() -> None:
    a = np.array([1.5, -2.5, 100.9, -0.0], np.float32)
    np.testing.assert_array_equal(apply(lambda c, x, y: c.convert(x, "i32"), a, a, "i32"), [1, -2, 100, 0])
    np.testing.assert_array_equal(apply(lambda c, x, y: c.convert(x, "double"), a, a, "double"), a)
    n = np.array([-1, 7, 2**24 + 1, -128], np.int32)
    np.testing.assert_array_equal(apply(lambda c, x, y: c.convert(x, "float"), n, n, "float"), n.astype("f4"))
    np.testing.assert_array_equal(apply(lambda c, x, y: c.convert(x, "i8"), n, n, "i8"), n.astype(np.int8))
    np.testing.assert_array_equal(apply(lambda c, x, y: c.bits(x, "i32"), a, a, "i32"), a.view(np.int32))


@pytest.mark.parametrize("lanes", [1, 2, 8, 16])
def test_sums_and_largest_of_lanes(lanes: int) -> None:
    a = np.random.default_rng(lanes).standard_normal(lanes).astype(np.float32)
    total = apply(lambda c, x, y: c.splat(c.sum_of(x), lanes), a, a, "float")
    np.testing.assert_allclose(total, np.full(lanes, a.sum()), rtol=1e-6)
    if lanes > 1:
        largest = apply(lambda c, x, y: c.splat(c.largest_of(x), lanes), a, a, "float")
        np.testing.assert_array_equal(largest, np.full(lanes, a.max()))
        a[-1] = np.nan
        assert np.isnan(apply(lambda c, x, y: c.splat(c.largest_of(x), lanes), a, a, "float")).all()


@pytest.mark.parametrize("count", [0, 1, 5, 15, 16])
def test_masks_leave_the_rest_alone(count: int) -> None:
    x, out = np.arange(16, dtype=np.float32), np.full(16, -7, np.float32)

    def write(code: Code) -> None:
        mask = code.first_lanes(code.slot(2), 16)
        code.store(code.load(code.slot(0, "ptr"), 0, "<16 x float>", mask) + 1, code.slot(1, "ptr"), 0, mask)

    run(write, x, out, count)
    np.testing.assert_array_equal(out, np.where(np.arange(16) < count, x + 1, -7))


def test_loops_variables_and_conditions() -> None:
    """The sum of the even numbers below n, and how many rounds there were."""
    out = np.zeros(2, np.int64)

    def write(code: Code) -> None:
        total, rounds = code.variable("i64", 0), code.variable("i64", 0)
        with code.loop(0, code.slot(1)) as i:
            rounds.value = rounds.value + 1
            with code.if_((i % 2).equals(0)), code.loop(0, 1):
                total.value = total.value + i
        code.store(total.value, code.slot(0, "ptr"), 0)
        code.store(rounds.value, code.slot(0, "ptr"), 1)

    run(write, out, 11)
    assert out.tolist() == [30, 11]
    run(write, out, 0)
    assert out.tolist() == [0, 0]


def test_slots_of_each_type() -> None:
    out = np.zeros(2)

    def write(code: Code) -> None:
        code.store(code.slot(1, "double"), code.slot(0, "ptr"), 0)
        code.store(code.convert(code.slot(2), "double"), code.slot(0, "ptr"), 1)

    run(write, out, 0.1, -3)
    assert out.tolist() == [0.1, -3.0]


def test_what_llvm_refuses_is_an_error() -> None:
    with pytest.raises(ShaderError, match=r"\[kernel\] LLVM refuses a kernel: LLVM IR parsing"):
        run(lambda code: code.line(f"ret {code.slot(0)!r}x"))
