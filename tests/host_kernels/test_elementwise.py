"""Compiled kernels of elementwise ops beside the NumPy bodies: dtypes, layouts, numbers, changes in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.kernels.host_kernel import HostLaunch
from dl4all.ops.core.op import REGISTRY
from dl4all.ops.elementwise.declare import Elementwise
from dl4all.runtime.cpu.llvm import provider
from tests.support.operands import NDArray, draw, generator, numbers

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")

OPS = {name: op for name, op in REGISTRY.items() if isinstance(op, Elementwise) and not name.startswith("_")}
WITHOUT_KERNELS = ("lgamma", "digamma", "zeta", "ndtri")
TOLERANCES = {"float32": 2e-6, "float64": 1e-14, "float16": 2e-3}
DTYPES = ("float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")


def test_transposed_operands() -> None:
    """Squares of a vector's size, what is left of rows and columns, further axes, and expanded ones."""
    for dtype in ("float32", "bfloat16", "int64", "uint8"):
        for shape in ((16, 16), (37, 53), (2, 3, 17, 64), (16, 15), (31, 700)):
            x = dl.tensor(numbers(generator(shape), shape) * 20, device="cpu").to(dtype)
            y = dl.tensor(numbers(generator(shape, 1), shape) * 20, device="cpu").to(dtype).mT.clone()
            for own, row in ((y, y[..., :1, :]), (y[..., :1], y)):
                found = dl.where(x.mT != own, x.mT, row)
                a, b, c = (one.float().numpy() for one in (x, own, row))
                expected = np.where(a.swapaxes(-1, -2) != b, a.swapaxes(-1, -2), c)
                np.testing.assert_array_equal(found.float().numpy(), expected)
            np.testing.assert_array_equal(x.mT.contiguous().numpy(), x.numpy().swapaxes(-1, -2))


def test_a_square_is_added_to_its_own_transpose() -> None:
    x = dl.arange(40.0 * 40, device="cpu").reshape(40, 40)
    expected = x.numpy() + x.numpy().T
    np.testing.assert_array_equal(x.add_(x.T).numpy(), expected)


class Launches:
    """Counts what compiled kernels do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        run = HostLaunch.run

        def counted(launch: HostLaunch, *args: Any) -> None:
            self.count += 1
            run(launch, *args)

        monkeypatch.setattr(HostLaunch, "run", counted)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    return Launches(monkeypatch)


def on_cpu(array: NDArray) -> dl.Tensor:
    return dl.tensor(array, device="cpu")


def without_kernels(monkeypatch: pytest.MonkeyPatch, op: Any, *operands: Any, **arguments: Any) -> NDArray:
    """What the NumPy body computes."""
    with monkeypatch.context() as patch:
        patch.setattr(provider, "enabled", False)
        dl.device("cpu").plans.clear()
        result: NDArray = op(*operands, **arguments).numpy()
    dl.device("cpu").plans.clear()
    return result


def check_close(got: NDArray, expected: NDArray, label: object) -> None:
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), label
    if kind_of(got.dtype) == "f":
        tolerance = TOLERANCES[got.dtype.name]
        np.testing.assert_allclose(got, expected, tolerance, tolerance, err_msg=str(label))
    else:
        np.testing.assert_array_equal(got, expected, str(label))


@pytest.mark.parametrize("name", OPS)
def test_every_op_has_a_kernel(name: str, launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """For float32 operands of all sizes, or integers where it takes no floats; none depends on the place."""
    op = OPS[name]
    rng = generator(name, "host")
    operands = [draw(op, operand, rng, (20011,)) for operand in op.arrays]
    arguments = dict(op.examples[-1].arguments) if set(op._defaults) != set(op.arguments) else {}
    whole = op(*map(on_cpu, operands), **arguments).numpy()
    assert launches.count == (name not in WITHOUT_KERNELS)
    expected = without_kernels(monkeypatch, op, *map(on_cpu, operands), **arguments)
    if kind_of(whole.dtype) == "f":
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(whole, expected, 1e-5, 2e-6 * scale)
    else:
        np.testing.assert_array_equal(whole, expected)
    for start, stop in ((0, 1), (3, 10), (7, 15), (16, 83), (0, 20011)):
        part = op(*(on_cpu(operand)[start:stop] for operand in operands), **arguments).numpy()
        np.testing.assert_array_equal(part, whole[start:stop])


LAYOUTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "one": ((1,), (1, 1)),
    "rows": ((5, 67), (67,)),
    "columns": ((13, 1), (13, 7)),
    "outer": ((11, 1), (1, 17)),
    "scalar": ((), (3, 19)),
    "channels": ((2, 3, 7, 5), (3, 1, 1)),
    "many axes": ((2, 1, 3, 1, 2, 1), (1, 3, 1, 2, 1, 5)),
}


def strided(array: NDArray, how: str) -> dl.Tensor:
    """A tensor with these elements that lies in some way within larger memory."""
    if how == "transposed" and array.ndim:
        return on_cpu(np.ascontiguousarray(array.T)).permute(*reversed(range(array.ndim)))
    if how == "stepped" and array.ndim:
        wide = np.repeat(array, 3, axis=-1)
        wide[..., 1::3] = 0
        return on_cpu(wide)[..., ::3]
    if how == "offset" and array.ndim:
        return on_cpu(np.concatenate([array[:1], array]))[1:]
    return on_cpu(array)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["add", "true_divide", "lt", "maximum"])
def test_layouts(name: str, layout: str, launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = generator(name, layout)
    op = OPS[name]
    a, b = (draw(op, "input", rng, shape) for shape in LAYOUTS[layout])
    for how in ("contiguous", "transposed", "stepped", "offset"):
        for first, second in ((strided(a, how), on_cpu(b)), (on_cpu(b), strided(a, how))):
            launches.count = 0
            got = op(first, second).numpy()
            assert launches.count == 1, how
            check_close(got, without_kernels(monkeypatch, op, first, second), how)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "maximum", "ge", "logical_and", "abs", "where", "sign"]
)
def test_dtypes(name: str, dtype: str, launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside float32 and int64 too, to whose common dtype operands are converted."""
    op = OPS[name]
    kind = kind_of(np.dtype(dtype))
    if kind not in op.kinds or (dtype in ("uint8", "bool") and op.expression(dtype) is None):
        return
    for other in (dtype, "float32", "int64"):
        rng = generator(name, dtype, other)
        shapes = ((37,), (5, 37), (5, 1))
        operands = [
            on_cpu(draw(op, operand, rng, shape, one))
            for operand, shape, one in zip(op.arrays, shapes, (dtype, other, dtype), strict=False)
        ]
        launches.count = 0
        got = op(*operands).numpy()
        if "float16" not in (dtype, other) or provider.processor().converts_half:
            assert launches.count == 1, other
        check_close(got, without_kernels(monkeypatch, op, *operands), other)


@pytest.mark.parametrize("dtype", ["int32", "int64", "int16", "int8", "uint8"])
@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide"])
def test_divisions_of_integers(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A division by 0 gives 0, and the smallest number divided by -1 wraps around."""
    rng = generator(name, dtype)
    limits = np.iinfo(dtype)
    special = np.array(
        [0, 1, 2, 3, 7, limits.max, limits.min, limits.max - 1, *([-1, -2] * (limits.min < 0))]
    )
    a = np.concatenate([np.repeat(special, special.size), rng.integers(limits.min, limits.max, 1000)])
    b = np.concatenate([np.tile(special, special.size), rng.integers(limits.min, limits.max, 1000) // 1000])
    operands = [on_cpu(array.astype(dtype)) for array in (a, b)]
    expected = without_kernels(monkeypatch, OPS[name], *operands)
    np.testing.assert_array_equal(OPS[name](*operands).numpy(), expected)


@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide"])
def test_divisions_of_floats(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are exact, however large the quotient."""
    rng = generator(name)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 1e-45, 3.4e38, 0.1, 16777217.0])
    a = np.concatenate(
        [np.repeat(special, special.size), rng.normal(size=3000) * 2.0 ** rng.integers(-126, 120, 3000)]
    )
    b = np.concatenate(
        [np.tile(special, special.size), rng.normal(size=3000) * 2.0 ** rng.integers(-30, 30, 3000)]
    )
    a, b = a.astype(np.float32), b.astype(np.float32)
    got = OPS[name](on_cpu(a), on_cpu(b)).numpy()
    expected = without_kernels(monkeypatch, OPS[name], on_cpu(a), on_cpu(b))
    np.testing.assert_array_equal(got, expected)
    defined = ~np.isnan(expected) & ((expected != 0) | (name != "remainder"))
    np.testing.assert_array_equal(np.signbit(got)[defined], np.signbit(expected)[defined])


def test_numbers_may_be_others_in_each_call(launches: Launches) -> None:
    x = generator("numbers").normal(size=(3, 7)).astype(np.float32)
    tensor = on_cpu(x)
    for number in (1.5, -2.25, float("nan"), float("inf")):
        np.testing.assert_array_equal((tensor * number).numpy(), x * np.float32(number))
        np.testing.assert_array_equal((number - tensor).numpy(), np.float32(number) - x)
        added = dl.add(tensor, tensor, alpha=number).numpy()
        np.testing.assert_array_equal(added, x + np.float32(number) * x)
    assert launches.count == 12


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_numbers_that_do_not_fit_are_refused(dtype: str) -> None:
    x = generator(dtype).integers(0, 9, 5).astype(dtype)
    limits = np.iinfo(dtype)
    for number in (limits.max, limits.min, 3):
        np.testing.assert_array_equal((on_cpu(x) * number).numpy(), x * np.array(number, dtype))
    for number in (limits.max + 1, limits.min - 1):
        with pytest.raises(ArgumentError, match="does not fit"):
            on_cpu(x) * number


@pytest.mark.parametrize("how", ["contiguous", "transposed", "stepped", "offset"])
def test_changes_in_place(how: str, launches: Launches) -> None:
    """One launch, in the tensor's own memory; numbers may be others, and neighbours stay."""
    rng = generator(how)
    x, y = rng.normal(size=(2, 5, 13)).astype(np.float32)
    target = strided(x, how)
    memory = dl.Tensor.strided_view(target, (target.storage.nbytes // 4,), (1,), 0)
    before = memory.numpy().copy()
    expected = x
    for alpha in (0.5, -2.0):
        launches.count = 0
        target.add_(on_cpu(y), alpha=alpha)
        assert launches.count == 1
        expected = expected + np.float32(alpha) * y
        np.testing.assert_array_equal(target.numpy(), expected)
    target.copy_(on_cpu(x))
    np.testing.assert_array_equal(memory.numpy(), before)


def test_changes_in_place_by_themselves(launches: Launches) -> None:
    x = generator("itself").normal(size=(7, 7)).astype(np.float32)
    target = on_cpu(x)
    target.mul_(target.T)
    np.testing.assert_array_equal(target.numpy(), x * x.T)
    target.relu_().mul_(2.0)
    np.testing.assert_array_equal(target.numpy(), np.maximum(x * x.T, 0) * 2)
    assert launches.count >= 3


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
def test_no_elements(shape: tuple[int, ...]) -> None:
    x = on_cpu(np.empty(shape, np.float32))
    assert (x + 1.0).shape == x.exp().shape == x.mul_(2.0).shape == shape
