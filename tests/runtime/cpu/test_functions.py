"""The accuracy of the functions of compiled kernels, and their special values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dl4all.ops.core.kernels.host_kernel import HostLaunch
from dl4all.ops.core.op import REGISTRY
from dl4all.runtime.cpu.llvm import error_functions, functions, provider, trigonometry
from dl4all.runtime.cpu.llvm.ir import IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector
from tests.support.operands import NDArray, generator
from tests.support.special_numbers import VALUES
from tests.support.ulps import ULPS, ulps

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")

MODULES = (functions, trigonometry, error_functions)
FUNCTIONS: dict[str, Callable[..., IrValue]] = {
    name: getattr(module, name) for name in ULPS for module in MODULES if hasattr(module, name)
}


def applied(function: Callable[..., IrValue], operands: int, lanes: int) -> IrModule:
    """``out[i] = function(a[i], ...)``. Slots: operands, result, count."""
    module = IrModule()
    with module.kernel("applied") as code:
        addresses = [code.slot(i, "ptr") for i in range(operands + 1)]
        with code.loop(0, code.slot(operands + 1), lanes) as i:
            values = [code.load(address, i, vector("float", lanes)) for address in addresses[:-1]]
            code.store(function(code, *values), addresses[-1], i)
    return module


def apply(function: Callable[..., IrValue], *operands: NDArray, lanes: int = 8) -> NDArray:
    """The elements of a function of the compiler's."""
    padded = [np.pad(operand, (0, -operand.size % lanes)) for operand in operands]
    out = np.full_like(padded[0], np.nan)
    launch = HostLaunch(applied, (function, len(operands), lanes), len(operands) + 1, (out.size,))
    launch.run([array.ctypes.data for array in (*padded, out)])
    return out[: operands[0].size]


def random_numbers(name: str) -> NDArray:
    """Of any bits, near the values that matter, and near multiples of pi / 2."""
    rng = generator(name, "functions")
    bits = rng.integers(0, 2**32, 50000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = [rng.uniform(-spread, spread, 10000).astype(np.float32) for spread in (1, 2, 20, 100, 1e4)]
    turns = (rng.integers(-60000, 60000, 20000) * (np.pi / 2)).astype(np.float32)
    return np.concatenate([bits, *near, turns, rng.uniform(0.5, 1.5, 10000).astype(np.float32), VALUES])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_accurate(name: str) -> None:
    x = random_numbers(name)
    with np.errstate(all="ignore"):
        exact = REGISTRY[name].body(x.astype(np.float64))
        off = ulps(apply(FUNCTIONS[name], x), exact)
    worst = int(np.argmax(off))
    assert off[worst] <= ULPS[name], f"{name}({x[worst]!r}) is not {exact[worst]!r}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_do_not_depend_on_lanes(name: str) -> None:
    x = random_numbers(name)[::37]
    expected = apply(FUNCTIONS[name], x)
    for lanes in (1, 4, 16):
        got = apply(FUNCTIONS[name], x, lanes=lanes)
        np.testing.assert_array_equal(got, expected, str(lanes))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ("exp2", "exp", "sigmoid")])
def test_zeros_keep_their_sign(name: str) -> None:
    x = np.array([-0.0, 0.0], np.float32)
    with np.errstate(all="ignore"):
        expected = REGISTRY[name].body(x)
    np.testing.assert_array_equal(np.signbit(apply(FUNCTIONS[name], x)), np.signbit(expected))


def test_functions_of_two_operands_are_accurate() -> None:
    rng = generator("two operands")
    special = np.concatenate([VALUES, [2, -2, 7, 16777217, -1e-40, 3e38]]).astype(np.float32)
    x = np.exp2(rng.uniform(-126, 127, 50000)).astype(np.float32) * rng.choice([-1, 1], 50000)
    x[:20000] = rng.uniform(-1.5, 1.5, 20000)
    y = rng.uniform(-140, 140, 50000) / np.log2(np.abs(x))
    y[::3] = np.rint(y[::3])
    for name, module in (("pow", functions), ("atan2", trigonometry)):
        a = np.concatenate([x, np.repeat(special, special.size)]).astype(np.float32)
        b = np.concatenate([y, np.tile(special, special.size)]).astype(np.float32)
        got = apply(getattr(module, name), a, b)
        with np.errstate(all="ignore"):
            exact = REGISTRY[name].body(a.astype(np.float64), b.astype(np.float64))
            off = ulps(got, exact)
        worst = int(np.argmax(off))
        assert off[worst] <= 4, f"{name}({a[worst]!r}, {b[worst]!r}) is {got[worst]!r}, not {exact[worst]!r}"
