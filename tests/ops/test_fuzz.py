"""Random shapes, layouts and arguments: the result is NumPy's, or the documented error, on every device.

``DL4ALL_FUZZ`` says how many cases a device and a family of ops get, 10000 in the nightly workflow.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import dl4all as dl
from dl4all.errors import Dl4allError
from dl4all.ops import REGISTRY
from dl4all.ops.elementwise.declare import Elementwise
from tests.support.operands import LAYOUTS, NDArray, compare, draw, generator, reference

Draw = Callable[[st.SearchStrategy[Any]], Any]
Case = tuple[str, list[NDArray], dict[str, Any]]  # an op's name, its operands, its arguments

CASES = int(os.environ.get("DL4ALL_FUZZ", "40"))
fuzzed = settings(
    max_examples=CASES,
    deadline=None,
    database=None,
    derandomize=True,  # the same cases in each run
    suppress_health_check=list(HealthCheck),
)
ELEMENTWISE = sorted(op.name for op in REGISTRY.values() if isinstance(op, Elementwise) and "f" in op.kinds)
AXES = (
    "sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "count_nonzero", "logsumexp", "norm", "var",
    "std",
)  # fmt: skip
ONE_AXIS = ("softmax", "log_softmax", "cumsum", "cumprod", "argmax", "argmin")
size = st.integers(0, 9)
some = st.integers(1, 7)


def operands(name: str, *shapes: tuple[int, ...]) -> list[NDArray]:
    op = REGISTRY[name]
    rng = generator(name, shapes)
    return [draw(op, operand, rng, shape) for operand, shape in zip(op.arrays, shapes, strict=False)]


@st.composite
def elementwise(choose: Draw) -> Case:
    name = choose(st.sampled_from(ELEMENTWISE))
    count = len(REGISTRY[name].arrays)
    shapes = choose(
        arrays.mutually_broadcastable_shapes(num_shapes=count, max_dims=6, min_side=0, max_side=6)
    ).input_shapes
    return name, operands(name, *shapes), {}


@st.composite
def reduction(choose: Draw) -> Case:
    name = choose(st.sampled_from(AXES))
    shape = tuple(choose(st.lists(size, max_size=5)))
    axis = st.integers(-len(shape) - 1, len(shape))
    arguments: dict[str, Any] = {"dim": choose(st.one_of(axis, st.lists(axis, max_size=3).map(tuple)))}
    if name in ("argmax", "argmin") or (name != "logsumexp" and choose(st.booleans())):
        arguments["dim"] = choose(axis)
    if name != "count_nonzero":
        arguments["keepdim"] = choose(st.booleans())
    return name, operands(name, shape), arguments


@st.composite
def along_an_axis(choose: Draw) -> Case:
    name = choose(st.sampled_from(ONE_AXIS))
    shape = tuple(choose(st.lists(size, max_size=5)))
    return name, operands(name, shape), {"dim": choose(st.integers(-len(shape) - 1, len(shape)))}


@st.composite
def product(choose: Draw) -> Case:
    if choose(st.booleans()):
        m, n, k = (choose(st.integers(0, 40)) for _ in range(3))
        lead = tuple(choose(st.lists(st.integers(0, 4), max_size=3)))
        return "linear", operands("linear", (*lead, m, k), (n, k), (n,)), {}
    signature = arrays.mutually_broadcastable_shapes(
        signature="(m?,k),(k,n?)->(m?,n?)", max_dims=3, min_side=0, max_side=5
    )
    left, right = choose(signature).input_shapes
    if choose(st.integers(0, 9)) == 0:
        right = (*right, 3)  # may not fit
    return "matmul", operands("matmul", left, right), {}


@st.composite
def convolution(choose: Draw) -> Case:
    axes = choose(st.integers(1, 3))
    groups = choose(st.integers(1, 3))
    channels, filters = (groups * choose(st.integers(1, 4)) for _ in range(2))
    image = tuple(choose(st.integers(1, 12 if axes < 3 else 6)) for _ in range(axes))
    kernel = tuple(choose(st.integers(1, 4)) for _ in range(axes))
    x, w = (choose(st.integers(0, 3)), channels, *image), (filters, channels // groups, *kernel)
    name = f"conv{axes}d"
    return (
        name,
        operands(name, x, w, (filters,)),
        {
            "stride": tuple(choose(st.integers(1, 3)) for _ in range(axes)),
            "padding": choose(st.one_of(st.integers(0, 3), st.just("valid"))),
            "dilation": choose(st.integers(1, 3)),
            "groups": groups,
        },
    )


@st.composite
def pooling(choose: Draw) -> Case:
    name = choose(st.sampled_from(("max_pool2d", "avg_pool2d")))
    shape = tuple(choose(st.integers(1, top)) for top in (3, 4, 13, 13))
    return (
        name,
        operands(name, shape),
        {
            "kernel_size": (choose(st.integers(1, 5)), choose(st.integers(1, 5))),
            "stride": choose(st.one_of(st.none(), st.integers(1, 4))),
            "padding": choose(st.integers(0, 2)),
            "ceil_mode": choose(st.booleans()),
        },
    )


FAMILIES = (elementwise, reduction, along_an_axis, product, convolution, pooling)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_ops(family: Callable[[], st.SearchStrategy[Case]], device: str) -> None:
    layout = st.sampled_from(sorted(LAYOUTS))

    @fuzzed
    @given(family(), st.lists(layout, min_size=3, max_size=3))
    def check(case: Case, layouts: list[str]) -> None:
        name, given_arrays, arguments = case
        op = REGISTRY[name]
        made = [LAYOUTS[kind](a, device) for kind, a in zip(layouts, given_arrays, strict=False)]
        elements = [a for _, a in made]
        refusal: Dl4allError | None = None
        try:
            op(*(dl.tensor(a, device="cpu") for a in elements), **arguments)
        except Dl4allError as error:
            refusal = error
        if refusal is not None:  # in the same words everywhere
            words = re.escape(str(refusal))
            assert words.startswith(re.escape(f"[{name}] "))
            with pytest.raises(type(refusal), match=words):
                op(*(tensor for tensor, _ in made), **arguments)
            return
        compare(op(*(tensor for tensor, _ in made), **arguments), reference(op, list(elements), **arguments))

    check()


@st.composite
def indexing(choose: Draw) -> tuple[NDArray, Any]:
    shape = tuple(choose(st.lists(st.integers(0, 6), min_size=1, max_size=4)))
    key: list[Any] = []
    for length in shape[: choose(st.integers(0, len(shape)))]:
        kind = choose(st.integers(0, 5))
        if kind == 0:
            key.append(choose(st.integers(-length - 1, length)))  # at times out of range
        elif kind == 1 and length:
            key.append(np.array(choose(st.lists(st.integers(-length, length - 1), max_size=4)), np.int64))
        elif kind == 2:
            key.append(np.array(choose(st.lists(st.booleans(), min_size=length, max_size=length)), bool))
        else:
            bound = st.one_of(st.none(), st.integers(-length - 2, length + 2))
            key.append(slice(choose(bound), choose(bound), choose(st.one_of(st.none(), st.integers(1, 3)))))
        if choose(st.integers(0, 5)) == 0:
            key.append(None)
    if choose(st.booleans()):
        key.insert(choose(st.integers(0, len(key))), Ellipsis)
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32), tuple(key)


def test_indexing(device: str) -> None:
    """As PyTorch, to which a number beside arrays is no array of one, as it is to NumPy."""
    torch = pytest.importorskip("torch", reason="indexing is compared with PyTorch's")

    @fuzzed
    @given(indexing())
    def check(case: tuple[NDArray, Any]) -> None:
        array, key = case
        x, theirs = dl.tensor(array, device=device), torch.from_numpy(array).clone()
        their_key = tuple(torch.from_numpy(k) if isinstance(k, np.ndarray) else k for k in key)
        expected = None
        with contextlib.suppress(IndexError):
            expected = theirs[their_key]
        if expected is None:
            with pytest.raises(Dl4allError):
                x[key]
            return
        np.testing.assert_array_equal(x[key].numpy(), expected.numpy())
        x[key] = theirs[their_key] = 7.5
        np.testing.assert_array_equal(x.numpy(), theirs.numpy())

    check()
