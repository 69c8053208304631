"""Compiled convolutions compute what their NumPy bodies do, wherever operands lie, and touch nothing else."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.host_kernels.conv.convolution import prepare_convolution
from dl4all.host_kernels.conv.epilogue import Following
from dl4all.host_kernels.conv.parts import Extents
from dl4all.host_kernels.conv.winograd import is_faster
from dl4all.host_kernels.conv.winograd_weights import winograd_weight_gradient
from dl4all.host_kernels.elementwise.elementwise import Assignment, ElementwiseProgram, number_type
from dl4all.ops.conv.convolution import ConvArgs
from dl4all.ops.conv.on_host import convolution as host
from dl4all.ops.core.expressions.expression import parse
from dl4all.ops.core.kernels import host_kernel
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm import target
from tests.conftest import run_python
from tests.support.subcases import each

pytestmark = pytest.mark.skipif(target.binding() is None, reason="llvmlite is missing")

Array = npt.NDArray[Any]


class Case(NamedTuple):
    """A convolution: images, filters, and arguments."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1

    @property
    def args(self) -> ConvArgs:
        return ConvArgs(*self[2:])

    @property
    def out(self) -> tuple[int, ...]:
        size = self.args.window(self.w[2:]).output_size(self.x[2:])
        return (self.x[0], self.w[0], *size)

    @property
    def arguments(self) -> dict[str, Any]:
        return self.args._asdict()


CASES = (
    Case((2, 3, 13, 11), (5, 3, 3, 3), padding=1),
    Case(
        (1, 70, 9, 17), (67, 70, 3, 3), padding=1
    ),  # several blocks of channels, filters beyond the last tile
    Case((3, 64, 7, 7), (16, 64, 3, 3), padding=1),  # places of several images in a tile
    Case((5, 8, 2, 2), (9, 8, 3, 3), padding=1),
    Case((1, 3, 31, 29), (8, 3, 7, 7), stride=2, padding=3),
    Case((2, 4, 23, 40), (11, 4, 3, 3), stride=(2, 1), padding=(0, 2)),
    Case((2, 4, 23, 41), (11, 4, 3, 2), stride=(3, 2), padding=(2, 1), dilation=(1, 2)),
    Case((2, 6, 17, 19), (4, 6, 2, 3), stride=3, dilation=2),
    Case((2, 6, 11, 13), (9, 2, 3, 2), stride=(2, 1), padding=(0, 2), dilation=(1, 3), groups=3),
    Case((1, 128, 6, 5), (1, 128, 3, 3), padding=1),
    Case((2, 200, 7, 9), (24, 200, 1, 1)),
    Case((2, 5, 12, 10), (7, 5, 1, 1), stride=2),
    Case((1, 3, 32, 32), (20, 3, 16, 16), stride=16),
    Case((2, 2, 3, 4), (3, 2, 2, 2), padding=5),  # whole rows of results see padding only
    Case((2, 2, 5, 6), (3, 2, 1, 1), stride=2, padding=3),
    Case((3, 6, 5, 4), (21, 6, 5, 4)),  # a filter meets the whole image
    Case((2, 3, 211), (17, 3, 5), padding=2),
    Case((1, 4, 11), (6, 2, 2), stride=2, padding=2, dilation=3, groups=2),
    Case((2, 5, 19, 23), (5, 1, 3, 3), padding=1, groups=5),  # depthwise
    Case((3, 5, 9, 18), (10, 1, 3, 2), stride=2, padding=(2, 1), groups=5),
    Case((2, 3, 20, 37), (6, 1, 5, 3), stride=(1, 2), padding=(0, 1), dilation=(1, 2), groups=3),
    Case((2, 6, 17, 19), (2, 3, 3, 3), stride=(3, 1), padding=1, groups=2),
    Case((1, 7, 67), (7, 1, 4), padding=3, groups=7),
    Case((1, 230, 7, 7), (19, 230, 1, 1)),  # a place beyond the last tile, in several blocks of channels
    Case((1, 70, 7, 7), (19, 70, 3, 3), padding=1),
    Case((1, 9, 10, 10), (7, 9, 3, 3), padding=1),  # four
    Case((2, 3, 5, 7, 6), (5, 3, 3, 2, 3), padding=1),
    Case((1, 4, 4, 5, 7), (6, 2, 2, 3, 1), stride=(1, 2, 3), padding=(1, 0, 2), groups=2),
)
BY_WINOGRAD = (
    Case((2, 31, 19, 23), (47, 31, 3, 3), padding=1),
    Case((2, 190, 27, 18), (45, 190, 3, 3)),  # several blocks of channels
    Case((1, 48, 32, 13), (230, 48, 3, 3), padding=2),  # and of filters
    Case((9, 64, 10, 7), (40, 64, 3, 3), padding=(0, 1)),  # tiles of several images in a block
    Case((1, 128, 14, 15), (64, 128, 3, 3), padding=1),  # blocks transform filters themselves
)


class Guarded:
    """An array amid numbers that nobody may read or write."""

    def __init__(self, values: Array, gaps: bool = False) -> None:
        shape = tuple(2 * n + 1 for n in values.shape) if gaps else values.shape
        inside = tuple(slice(1, None, 2) for _ in values.shape) if gaps else ...
        guard = 1024
        count = int(np.prod(shape))
        self._memory = np.full(count + 2 * guard, np.nan, values.dtype)
        self.array = self._memory[guard : guard + count].reshape(shape)[inside]
        self.array[...] = values
        self._around = np.ones(self._memory.shape, bool)
        self._around[guard : guard + count].reshape(shape)[inside] = False

    @property
    def layout(self) -> ArrayLayout:
        itemsize = self.array.itemsize
        return ArrayLayout(
            self.array.shape, self.array.dtype, tuple(s // itemsize for s in self.array.strides)
        )

    def check(self) -> None:
        """Fail if something around the array was written."""
        assert np.isnan(self._memory[self._around]).all()


def computed(prepare: Callable[..., HostLaunch], shape: tuple[int, ...], *operands: Guarded) -> Array:
    """What a kernel writes, into memory that holds nan."""
    out = Guarded(np.full(shape, np.nan, operands[0].array.dtype))
    launch = prepare(out.layout, *(operand.layout for operand in operands))
    scratch = Guarded(np.full(launch.scratch // out.array.itemsize, np.nan, out.array.dtype))
    given = [*operands, out, *([scratch] if launch.scratch else [])]
    launch.run([array.array.ctypes.data for array in given])
    for array in given:
        array.check()
    return out.array


def drawn(seed: int, *shapes: tuple[int, ...], dtype: Any = np.float32) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def close(result: Array, expected: Array) -> None:
    tolerance = 1e-5 if result.dtype == np.float32 else 1e-13
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def prepared(name: str, **arguments: Any) -> Callable[..., HostLaunch]:
    prepare = host_kernel.kernel_of(name)
    assert prepare is not None
    return functools.partial(prepare, **arguments)


def declined(case: Case) -> bool:
    """Whether the gradient of the input has no kernel: too many remainders, or taps with gaps."""
    return case.stride == 16 or (len(case.x) == 5 and case.stride != 1)


def filters_of(case: Case, values: Array, gaps: bool) -> Guarded:
    """Three axes with gaps are more than kernels take, as are filters with gaps that meet whole images."""
    return Guarded(values, gaps and len(case.x) < 5 and case.x[2:] != case.w[2:])


each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.x}-{case.w}")
each_by_winograd = pytest.mark.parametrize("case", BY_WINOGRAD, ids=lambda case: f"{case.x}-{case.w}")
each_layout = pytest.mark.parametrize("gaps", [False, True])
each_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@each_case
@each_dtype
@each_layout
def test_convolution(case: Case, dtype: Any, gaps: bool) -> None:
    x, w, bias = drawn(0, case.x, case.w, case.w[:1], dtype=dtype)
    win = case.args.window(case.w[2:])
    expected = host.forward(x.astype(float), w.astype(float), bias.astype(float), win, case.groups)
    prepare = prepared(f"conv{len(case.x) - 2}d", **case.arguments)
    operands = Guarded(x, gaps), filters_of(case, w, gaps), Guarded(bias, gaps)
    close(computed(prepare, case.out, *operands), expected)


@each_case
@each_dtype
@each_layout
def test_gradient_of_the_input(case: Case, dtype: Any, gaps: bool) -> None:
    g, w = drawn(1, case.out, case.w, dtype=dtype)
    win = case.args.window(case.w[2:])
    expected = host.input_gradient(g.astype(float), w.astype(float), case.x[2:], win, case.groups)
    prepare = prepared("conv_input", input_size=case.x[2:], **case.arguments)
    operands = Guarded(g, gaps), filters_of(case, w, gaps)
    if declined(case):
        with pytest.raises(NoKernel):
            computed(prepare, case.x, *operands)
        return
    close(computed(prepare, case.x, *operands), expected)


@each_case
@each_dtype
@each_layout
def test_gradient_of_the_filters(case: Case, dtype: Any, gaps: bool) -> None:
    g, x = drawn(2, case.out, case.x, dtype=dtype)
    win = case.args.window(case.w[2:])
    expected = host.weight_gradient(g.astype(float), x.astype(float), win, case.groups)
    prepare = prepared("conv_weight", kernel_size=case.w[2:], **case.arguments)
    close(computed(prepare, case.w, Guarded(g), Guarded(x, gaps)), expected)


@each_by_winograd
def test_by_tiles(case: Case) -> None:
    for test in (test_convolution, test_gradient_of_the_input, test_gradient_of_the_filters):
        test(case, np.float32, gaps=False)


def test_gradient_of_filters_whose_taps_do_not_fit_into_a_chunk() -> None:
    """Patches of 32 x 32: there are fewer chunks than wanted, and no channels left to split."""
    case = Case((1, 3, 64, 67), (5, 3, 32, 32), stride=4, padding=14)
    g, x = drawn(11, case.out, case.x)
    expected = host.weight_gradient(
        g.astype(float), x.astype(float), case.args.window(case.w[2:]), case.groups
    )
    prepare = prepared("conv_weight", kernel_size=case.w[2:], **case.arguments)
    close(computed(prepare, case.w, Guarded(g), Guarded(x)), expected)


class Step(NamedTuple):
    """A step of what follows sums: an expression of ``x`` and perhaps of a tensor ``a`` or a number ``a``."""

    expression: str
    numpy: Callable[..., Array]
    operand: str = ""
    kept: bool = False  # written to memory, too


STEPS = {
    "relu": Step("larger(x, 0.0)", lambda x: np.maximum(x, 0)),
    "added": Step("x + a", np.add, "like the result"),
    "scaled": Step("x * a", np.multiply, "of filters"),
    "shifted": Step("a - x", lambda x, a: a - x, "number"),
    "kept": Step("x * 2.0", lambda x: x * 2, kept=True),
}


def following(names: list[str], layouts: list[ArrayLayout], dtype: str, numbers: list[float]) -> Following:
    """The program of some steps."""
    given = [STEPS[name].operand for name in names]
    tensors = sum(bool(operand) and operand != "number" for operand in given)
    place, number = itertools.count(1), itertools.count(1 + tensors)
    assignments = []
    for position, name in enumerate(names):
        source = 1 + tensors + len(numbers) + position - 1 if position else 0
        operands = [("x", source, dtype)]
        if STEPS[name].operand:
            operands.append(("a", next(number if STEPS[name].operand == "number" else place), dtype))
        assignments.append(Assignment(parse(STEPS[name].expression), dtype, tuple(operands), dtype))
    results = [i for i, name in enumerate(names) if STEPS[name].kept or i == len(names) - 1]
    program = ElementwiseProgram(
        (dtype,) * (1 + tensors), (number_type(dtype),) * len(numbers), tuple(assignments), tuple(results)
    )
    return Following(program, layouts, numbers)


@pytest.mark.parametrize(("dtype", "bias"), [("float32", True), ("float64", False)])
@pytest.mark.parametrize(
    "steps", ["relu", "added relu", "scaled added", "shifted relu", "scaled kept shifted kept added"]
)
@pytest.mark.parametrize("number", [0, 2, 18, 21, -1])
def test_what_follows_sums(number: int, steps: str, bias: bool, dtype: str) -> None:
    case, names = (*CASES, *BY_WINOGRAD)[number], steps.split()
    x, w, b = drawn(3, case.x, case.w, case.w[:1], dtype=dtype)
    of_filters = (case.w[0], *(1 for _ in case.out[2:]))
    shapes = {"like the result": case.out, "of filters": of_filters}
    wanted = [STEPS[name].operand for name in names]
    tensors = drawn(7, *(shapes[operand] for operand in wanted if operand in shapes), dtype=dtype)
    numbers = [1.5 + i for i in range(wanted.count("number"))]
    value = host.forward(x.astype(float), w, b if bias else None, case.args.window(case.w[2:]), case.groups)
    expected, left, others = list[Array](), iter(numbers), iter(tensors)
    for name in names:
        step = STEPS[name]
        more = () if not step.operand else (next(left if step.operand == "number" else others),)
        value = step.numpy(value, *more)
        if step.kept:
            expected.append(value)
    expected = [*expected, value] if not STEPS[names[-1]].kept else expected
    beside = [Guarded(np.full(case.out, np.nan, dtype)) for _ in expected[:-1]]
    operands = [Guarded(each) for each in (x, w, *([b] if bias else []), *tensors)]

    def prepare(out: ArrayLayout, x: ArrayLayout, w: ArrayLayout, *others: ArrayLayout) -> HostLaunch:
        layouts = [out, *others[bias:], out]  # of the sums, which lie where the result does
        more = following(names, layouts, dtype, numbers)
        given = others[0] if bias else None
        launch: HostLaunch = prepared("conv2d", **case.arguments, following=more)(out, x, w, given)
        return launch

    result = computed(prepare, case.out, *operands, *beside)
    for found, right in zip([*(array.array for array in beside), result], expected, strict=True):
        close(found, right)


def test_numbers_of_what_follows_may_be_others_in_each_run() -> None:
    case = CASES[0]
    x, w = drawn(3, case.x, case.w)
    layout = ArrayLayout(case.out, x.dtype)
    launch = prepared(
        "conv2d", **case.arguments, following=following(["shifted"], [layout, layout], "float32", [1.0])
    )(layout, ArrayLayout(case.x, x.dtype), ArrayLayout(case.w, w.dtype), None)
    sums = host.forward(x.astype(float), w, None, case.args.window(case.w[2:]), case.groups)
    for number in (0.5, -3.0):
        out = np.full(case.out, np.nan, np.float32)
        scratch = np.full(launch.scratch // 4 + 1, np.nan, np.float32)
        given = [x, w, out, *([scratch] if launch.scratch else [])]
        launch.run([each.ctypes.data for each in given], [number])
        close(out, number - sums)


@pytest.mark.parametrize(
    "layout", [ArrayLayout((5, 13, 11), np.dtype("f")), ArrayLayout((2, 5, 13, 11), np.dtype("d"))]
)
def test_tensors_that_lie_in_other_ways_do_not_follow(layout: ArrayLayout) -> None:
    case = CASES[0]
    out, x, w = (ArrayLayout(shape, np.dtype("f")) for shape in (case.out, case.x, case.w))
    with pytest.raises(NoKernel):
        prepared(
            "conv2d", **case.arguments, following=following(["added"], [out, layout, out], "float32", [])
        )(out, x, w, None)


@each("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("case", CASES + BY_WINOGRAD, ids=lambda case: f"{case.x}-{case.w}")
def test_special_numbers_reach_what_they_reach_in_numpy(case: Case, bad: float) -> None:
    """In corners, where the next row or image follows in memory."""
    x, w, g = drawn(4, case.x, case.w, case.out)
    for array in (x, g):
        array[0].reshape(-1)[[0, -1]] = bad
    win = case.args.window(case.w[2:])
    with np.errstate(all="ignore"):
        pairs = [
            (f"conv{len(case.x) - 2}d", case.out, (x, w), host.forward(x, w, None, win, case.groups), {}),
            (
                "conv_weight",
                case.w,
                (g, x),
                host.weight_gradient(g, x, win, case.groups),
                {"kernel_size": case.w[2:]},
            ),
        ]
    for name, shape, operands, expected, more in pairs:
        guarded = [Guarded(operand) for operand in operands]

        def prepare(*layouts: ArrayLayout, name: str = name, more: dict[str, Any] = more) -> HostLaunch:
            extra = (None,) if name != "conv_weight" else ()
            launch: HostLaunch = prepared(name, **case.arguments, **more)(*layouts, *extra)
            return launch

        result = computed(prepare, shape, *guarded)
        for test in (np.isnan, np.isposinf, np.isneginf):
            np.testing.assert_array_equal(test(result), test(expected))


def test_relu_keeps_nan() -> None:
    x, w = drawn(5, (1, 2, 5, 5), (3, 2, 1, 1))
    x[0, 0, 2, 3] = np.nan
    result = computed(
        lambda out, x, w: prepared(
            "conv2d", **ConvArgs()._asdict(), following=following(["relu"], [out, out], "float32", [])
        )(out, x, w, None),
        (1, 3, 5, 5),
        Guarded(x),
        Guarded(w),
    )
    assert np.isnan(result[0, :, 2, 3]).all()
    assert np.isnan(result).sum() == 3


@each_by_winograd
def test_tiles_are_transformed_where_that_takes_less_time(case: Case) -> None:
    out, x, w = (ArrayLayout(shape, np.dtype("f")) for shape in (case.out, case.x, case.w))
    window = case.args.window(case.w[2:]).three_axes
    assert is_faster(Extents(case.x[0], 1, *case.w[:2]), (1, *case.out[2:]), flipped=False)
    assert is_faster(Extents(case.x[0], 1, case.w[1], case.w[0]), (1, *case.x[2:]), flipped=True)
    assert winograd_weight_gradient(w, out, x, window, groups=1)
    assert not winograd_weight_gradient(w, out, x, replace(window, stride=(1, 1, 2)), groups=1)


def test_tiles_stay_as_they_are_where_somebody_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A huge number costs no digits of results whose windows do not hold it."""
    case = BY_WINOGRAD[0]
    x, w, g = drawn(9, case.x, case.w, case.out)
    win = case.args.window(case.w[2:])
    prepare = prepared("conv2d", **case.arguments, bias=None)
    first = computed(prepare, case.out, Guarded(x), Guarded(w))
    weights = prepared("conv_weight", kernel_size=0, **case.arguments)
    gradient = computed(weights, case.w, Guarded(g), Guarded(x))
    monkeypatch.setenv("DL4ALL_WINOGRAD", "0")
    assert (computed(prepare, case.out, Guarded(x), Guarded(w)) != first).any()
    assert (computed(weights, case.w, Guarded(g), Guarded(x)) != gradient).any()
    x[0, 0, 0, 0] = 1e20
    expected = host.forward(x.astype(float), w.astype(float), None, win, 1)
    far = np.abs(expected) < 1e6
    close(computed(prepare, case.out, Guarded(x), Guarded(w))[far], expected[far])


def test_tiles_whose_transforms_overflow_are_added_up() -> None:
    """A number that is nearly as large as floats can be, and one that is no number at all."""
    case = BY_WINOGRAD[0]
    x, w, g = drawn(8, case.x, case.w, case.out)
    win = case.args.window(case.w[2:])
    calls: list[tuple[str, dict[str, Any], Array, Array, Callable[..., Array]]] = [
        ("conv2d", {"bias": None}, x, w, lambda x, w: host.forward(x, w, None, win, 1)),
        ("conv_input", {"input_size": 0}, g, w, lambda g, w: host.input_gradient(g, w, case.x[2:], win, 1)),
        ("conv_weight", {"kernel_size": 0}, g, x, lambda g, x: host.weight_gradient(g, x, win, 1)),
    ]
    for name, more, *operands, numpy in calls:
        for position, other in enumerate(operands):
            given = [operand / 16 for operand in operands]
            given[position] = other.copy()
            given[position][1, 5, 1, 1], given[position][0, 4, 0, 2] = 1e38, np.nan
            with np.errstate(all="ignore"):
                expected = numpy(*(array.astype(float) for array in given))
            assert np.abs(expected[np.isfinite(expected)]).max() > 1e36
            prepare = prepared(name, **case.arguments, **more)
            result = computed(prepare, expected.shape, *map(Guarded, given))
            np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
            for chosen in (np.abs(expected) > 1e30, np.abs(expected) < 1e6):
                close(result[chosen], expected[chosen])
                assert chosen.any()


THREADS = """
import hashlib, numpy as np, dl4all as dl
rng = np.random.default_rng(7)
sums = hashlib.sha256()
layers = (
    (3, 40, 29, 70, 3, 1), (9, 64, 7, 128, 3, 1), (1, 128, 14, 64, 3, 1),
    (2, 3, 61, 32, 7, 2), (2, 128, 28, 64, 1, 1),
)
for n, c, size, f, k, stride in layers:
    x = dl.tensor(rng.standard_normal((n, c, size, size)).astype("f"), device="cpu")
    w = dl.tensor(rng.standard_normal((f, c, k, k)).astype("f"), device="cpu")
    y = dl.nn.functional.conv2d(x, w, stride=stride, padding=k // 2)
    arguments = dict(stride=stride, padding=k // 2)
    gradient = dl.ops.conv_input(y, w, (size, size), **arguments)
    for result in (y, gradient, dl.ops.conv_weight(y, x, (k, k), **arguments)):
        sums.update(result.numpy().tobytes())
print(sums.hexdigest())
"""


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    found = {run_python(THREADS, DL4ALL_THREADS=str(threads)).stdout for threads in (1, 2, 7)}
    assert len(found) == 1
    assert len(found.pop().strip()) == len(hashlib.sha256().hexdigest())


def test_layers_use_kernels() -> None:
    """A convolution and both gradients, without a call of a NumPy body."""
    x, w = (dl.tensor(a, device="cpu", requires_grad=True) for a in drawn(6, (2, 3, 9, 9), (4, 3, 3, 3)))
    names = []
    found = {name: host_kernel.kernel_of(name) for name in ("conv2d", "conv_input", "conv_weight")}
    with pytest.MonkeyPatch.context() as patch:
        for name, prepare in found.items():
            assert prepare is not None

            def noting(*given: Any, name: str = name, prepare: Any = prepare, **more: Any) -> HostLaunch:
                launch: HostLaunch = prepare(*given, **more)
                names.append(name)
                return launch

            patch.setitem(host_kernel.HOST_KERNELS, name, noting)
        y = dl.nn.functional.conv2d(x, w, padding=(1, 2), stride=(1, 2))
        (y * y).sum().backward()
    assert sorted(names) == ["conv2d", "conv_input", "conv_weight"]


@pytest.mark.parametrize(
    ("x", "w", "groups"),
    [((1, 4, 5, 5, 5), (4, 1, 3, 3, 3), 4), ((1, 1, 40, 40), (1, 1, 17, 17), 1), ((1, 5, 1), (3, 5, 1), 1)],
)
def test_other_convolutions_are_left_to_numpy(x: tuple[int, ...], w: tuple[int, ...], groups: int) -> None:
    case = Case(x, w, groups=groups)
    out, input, weight = (ArrayLayout(shape, np.dtype(np.float32)) for shape in (case.out, x, w))
    with pytest.raises(NoKernel):
        prepare_convolution(out, input, weight, None, *case.args)
