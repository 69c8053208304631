"""Random shapes, layouts and arguments for what is made of many ops: as PyTorch's, gradients too.

What PyTorch refuses is refused here, in the project's own words. ``DL4ALL_FUZZ`` says how many cases a device
and a family get, as in ``test_fuzz.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import dl4all as dl
from dl4all.errors import Dl4allError
from tests.ops.test_fuzz import Draw, fuzzed
from tests.support.compare_torch import check_against_torch, torch
from tests.support.operands import LAYOUTS, generator, numbers

NDArray = npt.NDArray[Any]
Case = tuple[str, Callable[..., Any], list[NDArray]]
"""What is called, for messages; the call, on tensors of either library; and the operands."""


def lib(x: Any) -> Any:
    return dl if isinstance(x, dl.Tensor) else torch


def functional(x: Any) -> Any:
    return lib(x).nn.functional


def floats(*shape: int) -> NDArray:
    return numbers(generator("fuzz", shape), shape, "float32")


def of_some_kind(choose: Draw, array: NDArray) -> NDArray:
    """Mostly floats, whose gradients are compared too."""
    kind = choose(st.sampled_from(("float32", "float32", "float64", "int64", "int32", "uint8", "bool")))
    if kind == "bool":
        return np.asarray(array > 0)
    return array if kind == "float32" else np.asarray(abs(array) * 9).astype(kind)


def ints(high: int, *shape: int) -> NDArray:
    return generator("ints", high, shape).integers(0, max(high, 1), shape)


def shapes(choose: Draw, least: int = 0, most: int = 4, smallest: int = 0) -> tuple[int, ...]:
    return tuple(choose(st.lists(st.integers(smallest, 6), min_size=least, max_size=most)))


def method(name: str, *arguments: Any, **named: Any) -> tuple[str, Callable[..., Any]]:
    return f"{name}{arguments}{named}", lambda x, *more: getattr(x, name)(*more, *arguments, **named)


def function(name: str, *arguments: Any, **named: Any) -> tuple[str, Callable[..., Any]]:
    """Of ``nn.functional``."""
    return f"{name}{arguments}{named}", lambda x, *more: getattr(functional(x), name)(
        x, *more, *arguments, **named
    )


@st.composite
def moving(choose: Draw) -> Case:
    shape = shapes(choose)
    rank = len(shape)
    axis = choose(st.integers(-rank - 1, rank))
    some = tuple(choose(st.lists(st.integers(-rank, max(rank - 1, 0)), max_size=rank)))
    count = choose(st.integers(1, 3))
    makers: list[Callable[[], tuple[str, Callable[..., Any]]]] = [
        lambda: method("permute", tuple(choose(st.permutations(range(rank))))),
        lambda: method("flip", some),
        lambda: method("roll", tuple(choose(st.integers(-9, 9)) for _ in some or (0,)), some or (0,)),
        lambda: method("repeat", *(choose(st.integers(0, 3)) for _ in range(max(rank, 1) + count - 1))),
        lambda: method("tile", tuple(choose(st.integers(0, 3)) for _ in range(count))),
        lambda: method("unsqueeze", axis),
        lambda: method("squeeze", axis),
        lambda: method("movedim", axis, choose(st.integers(-rank, max(rank - 1, 0)))),
        lambda: method("narrow", axis, choose(st.integers(-3, 6)), choose(st.integers(0, 4))),
        lambda: method("unfold", axis, choose(st.integers(0, 7)), choose(st.integers(1, 3)) if rank else 0),
        lambda: method("tril", choose(st.integers(-4, 4))),
        lambda: method("triu", choose(st.integers(-4, 4))),
        lambda: method("diagonal", choose(st.integers(-4, 4)), axis, choose(st.integers(-rank, rank))),
        lambda: method("chunk", count, axis),
        lambda: method("split", count, axis),
        lambda: method("repeat_interleave", count, axis),
        lambda: method("flatten", axis, choose(st.integers(-rank - 1, rank))),
        lambda: method("rot90", choose(st.integers(-5, 5)), (0, 1)),
        lambda: method("unbind", axis),
        lambda: method("select", axis, choose(st.integers(-7, 7))),
    ]
    label, call = choose(st.sampled_from(makers))()
    return label, call, [of_some_kind(choose, floats(*shape))]


@st.composite
def joining(choose: Draw) -> Case:
    shape = shapes(choose, 1)
    axis = choose(st.integers(-len(shape) - 1, len(shape)))
    sizes = choose(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    name = choose(st.sampled_from(("cat", "stack")))
    place = axis if -len(shape) <= axis < len(shape) else 0
    parts = [list(shape) for _ in sizes]
    if name == "cat":
        assume(any(sizes) or len(shape) > 1)  # of nothing but nothing, PyTorch takes any axis
        for part, n in zip(parts, sizes, strict=True):
            part[place] = n
    if choose(st.integers(0, 7)) == 0:
        parts[-1][(place - 1) % len(shape)] += 1  # may not fit
    operands = [of_some_kind(choose, np.asarray(floats(*part) + i)) for i, part in enumerate(parts)]
    return f"{name} {parts} {axis}", lambda *xs: getattr(lib(xs[0]), name)(xs, axis), operands


@st.composite
def padding(choose: Draw) -> Case:
    mode = choose(st.sampled_from(("constant", "reflect", "replicate", "circular")))
    axes = choose(st.integers(1, 3))
    shape = (
        choose(st.integers(1, 2)),
        choose(st.integers(1, 3)),
        *(choose(st.integers(1, 5)) for _ in range(axes)),
    )
    least = -2 if mode == "constant" else 0
    widths = tuple(choose(st.integers(least, 4)) for _ in range(2 * axes))
    # PyTorch cannot cut all of it off.
    assume(
        all(
            n + min(a, 0) + min(b, 0) > 0
            for n, a, b in zip(shape[:1:-1], widths[::2], widths[1::2], strict=True)
        )
    )
    more = {"value": 2.5} if mode == "constant" else {}
    return (*function("pad", widths, mode, **more), [floats(*shape)])


@st.composite
def picking(choose: Draw) -> Case:
    shape = shapes(choose, 1, 3, 1)
    axis = choose(st.integers(-len(shape), len(shape) - 1))
    x, n = floats(*shape), shape[axis]
    wide = [choose(st.integers(0, size)) for size in shape]
    wide[axis] = choose(st.integers(0, 7))
    index, line = ints(n, *wide), ints(n, choose(st.integers(0, 7)))
    kind = choose(st.integers(0, 8))
    if kind == 0:
        return f"gather {wide} {axis}", lambda x, i: x.gather(axis, i), [x, index]
    if kind == 1:
        return f"scatter_add {wide}", lambda x, y, i: x.scatter_add(axis, i, y), [x, floats(*wide), index]
    if kind == 2:
        return f"index_select {axis}", lambda x, i: x.index_select(axis, i), [x, line]
    if kind == 3:
        rows = list(shape)
        rows[axis] = len(line)
        return f"index_add {axis}", lambda x, y, i: x.index_add(axis, i, y), [x, floats(*rows), line]
    if kind == 4:
        mask = generator("mask", shape).random(shape) < 0.4
        return "masked_fill", lambda x, m: x.masked_fill(m, -3.0), [x, mask]
    if kind == 5:
        mask = generator("mask", shape).random(shape[-1:]) < 0.6
        return "masked_select", lambda x, m: x.masked_select(m), [x, mask]
    if kind == 6:
        places = tuple(ints(size, 4) for size in shape[: choose(st.integers(1, len(shape)))])
        values = floats(4, *shape[len(places) :])
        return (
            f"index_put {len(places)}",
            lambda x, v, *at: x.index_put(at, v, accumulate=True),
            [x, values, *places],
        )
    if kind == 7:
        table = floats(choose(st.integers(1, 5)), choose(st.integers(1, 4)))
        where = ints(len(table), *shapes(choose, 0, 3))
        ignored = choose(st.one_of(st.none(), st.integers(-len(table), len(table) - 1)))
        return (
            f"embedding {table.shape} {ignored}",
            lambda t, i: functional(t).embedding(i, t, padding_idx=ignored),
            [table, where],
        )
    return f"take_along_dim {wide}", lambda x, i: lib(x).take_along_dim(x, i, axis), [x, ints(n, *wide)]


@st.composite
def ordering(choose: Draw) -> Case:
    shape = shapes(choose, 1, 3, 1)
    axis = choose(st.integers(-len(shape), len(shape) - 1))
    k = choose(st.integers(1, 7))
    flag = choose(st.booleans())
    makers = [
        lambda: method("sort", axis, flag),
        lambda: method("argsort", axis, flag),
        lambda: method("topk", k, axis, flag),
        lambda: method("kthvalue", k, axis, flag),
        lambda: method("median", axis, flag),
        lambda: method("max", axis, flag),
        lambda: method("min", axis, flag),
        lambda: method("cummax", axis),
        lambda: method("cummin", axis),
        lambda: method("logcumsumexp", axis),
        lambda: method("diff", choose(st.integers(1, 2)), axis),
        lambda: method("var", axis, correction=choose(st.integers(0, min(2, shape[axis] - 1))), keepdim=flag),
    ]
    label, call = choose(st.sampled_from(makers))()
    return label, call, [floats(*shape)]


@st.composite
def normalization(choose: Draw) -> Case:
    groups = choose(st.integers(1, 3))
    channels = groups * choose(st.integers(3, 4))  # the slopes of fewer cancel but for what is rounded
    image = (choose(st.integers(3, 6)) for _ in range(choose(st.integers(0, 2))))
    shape = (choose(st.integers(3, 4)), channels, *image)
    # Neighbours far apart: where all elements are nearly equal, digits are lost.
    apart = 4 * (np.arange(math.prod(shape)) % 3).reshape(shape)
    x = (floats(*shape) + apart).astype(np.float32)
    scaled = choose(st.booleans())
    own = [floats(channels) + 1, floats(channels)[::-1].copy()] if scaled else []
    kind = choose(st.integers(0, 3))
    if kind == 0:
        last = shape[-choose(st.integers(1, len(shape))) :]
        more = [floats(*last) + 1, floats(*last) * 2] if scaled else []
        return f"layer_norm {last}", lambda x, *p: functional(x).layer_norm(x, last, *p), [x, *more]
    if kind == 1:
        return f"group_norm {groups}", lambda x, *p: functional(x).group_norm(x, groups, *p), [x, *own]
    if kind == 2:
        kept = [floats(channels) * 0.3, np.abs(floats(channels)) + 0.5]
        training = choose(st.booleans())
        return (
            f"batch_norm {training}",
            lambda x, *p: functional(x).batch_norm(
                x, *(lib(x).from_numpy(array.copy()).to(x.device) for array in kept), *p, training=training
            ),
            [x, *own],
        )
    return (
        f"rms_norm {scaled}",
        lambda x, *p: functional(x).rms_norm(x, shape[-1:], *p),
        [
            x,
            *([floats(shape[-1]) + 1] if scaled else []),
        ],
    )


@st.composite
def losses(choose: Draw) -> Case:
    rows, classes = choose(st.integers(1, 5)), choose(st.integers(2, 6))
    more = tuple(choose(st.lists(st.integers(1, 3), max_size=2)))
    reduction = choose(st.sampled_from(("mean", "sum", "none")))
    x, y = floats(rows, classes, *more), floats(classes, rows, *more).swapaxes(0, 1).copy()
    labels = ints(classes, rows, *more)
    kind = choose(st.integers(0, 6))
    if kind <= 1:
        weight = np.abs(floats(classes)) + 0.1 if choose(st.booleans()) else None
        given = {
            "reduction": reduction,
            "ignore_index": choose(st.sampled_from((-100, 0))),
            "label_smoothing": choose(st.sampled_from((0.0, 0.1))),
        }
        if kind == 1:
            del given["label_smoothing"]
        name = ("cross_entropy", "nll_loss")[kind]

        def call(x: Any, t: Any) -> Any:
            w = None if weight is None else lib(x).from_numpy(weight.copy()).to(x.device)
            return getattr(functional(x), name)(x, t, w, **given)

        return f"{name} {given}", call, [x, labels]
    if kind == 2:
        return (*function("binary_cross_entropy_with_logits", reduction=reduction), [x, np.abs(np.sin(y))])
    if kind == 3:
        logs = np.log(np.abs(y) / np.abs(y).sum(1, keepdims=True) + 0.01)
        return (
            *function("kl_div", reduction="batch" * (reduction == "mean") + reduction, log_target=True),
            [x, logs],
        )
    name = choose(st.sampled_from(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")))
    return (*function(name, reduction=reduction), [x, y])


@st.composite
def windows(choose: Draw) -> Case:
    axes = choose(st.integers(1, 2))

    def sizes(low: int, high: int) -> tuple[int, ...]:
        return tuple(choose(st.integers(low, high)) for _ in range(axes))

    lead = choose(st.integers(1, 2)), choose(st.integers(1, 4))
    image = floats(*lead, *sizes(1, 9))
    flag = choose(st.booleans())
    makers = [
        lambda: function(f"max_pool{axes}d", sizes(1, 4), sizes(1, 3), sizes(0, 2), sizes(1, 2), flag),
        lambda: function(
            f"avg_pool{axes}d", sizes(1, 4), sizes(1, 3), sizes(0, 2), flag, choose(st.booleans())
        ),
        lambda: function(f"adaptive_avg_pool{axes}d", sizes(1, 5)),
        lambda: function(f"adaptive_max_pool{axes}d", sizes(1, 5)),
        lambda: function("interpolate", size=sizes(1, 9), mode="nearest"),
        lambda: function(
            "interpolate", size=sizes(1, 9), mode=("linear", "bilinear")[axes - 1], align_corners=flag
        ),
        lambda: function(
            "interpolate", scale_factor=choose(st.sampled_from((0.5, 1.5, 2.0))), mode="nearest"
        ),
        lambda: function("unfold", sizes(1, 3), sizes(1, 2), sizes(0, 2), sizes(1, 2)),
    ]
    label, call = choose(st.sampled_from(makers))()
    return label, call, [image]


@st.composite
def transposed_convolution(choose: Draw) -> Case:
    axes, groups = choose(st.integers(1, 3)), choose(st.integers(1, 2))
    channels, filters = (groups * choose(st.integers(1, 3)) for _ in range(2))
    image = tuple(choose(st.integers(1, 5)) for _ in range(axes))
    kernel = tuple(choose(st.integers(1, 4)) for _ in range(axes))
    stride = tuple(choose(st.integers(1, 3)) for _ in range(axes))
    padding = tuple(choose(st.integers(0, 2)) for _ in range(axes))
    assume(all(2 * pad < k for pad, k in zip(padding, kernel, strict=True)))  # so that something is left
    given = {
        "stride": stride,
        "padding": padding,
        "output_padding": tuple(choose(st.integers(0, step - 1)) for step in stride),
        "groups": groups,
        "dilation": tuple(choose(st.integers(1, 2)) for _ in range(axes)),
    }
    operands = [
        floats(choose(st.integers(1, 2)), channels, *image),
        floats(channels, filters // groups, *kernel),
    ]
    if filters > 2:  # the slope of a single bias may cancel
        operands.append(floats(filters))
    return (*function(f"conv_transpose{axes}d", **given), operands)


@st.composite
def attention(choose: Draw) -> Case:
    lead = tuple(choose(st.lists(st.integers(1, 3), max_size=2)))
    rows, keys, features, wide = (choose(st.integers(4, top)) for top in (11, 11, 6, 5))
    q, k, v = (
        numbers(generator("attention", name, lead), (*lead, *shape)) / 2  # or the shares are 0 and 1
        for name, shape in (("q", (rows, features)), ("k", (keys, features)), ("v", (keys, wide)))
    )
    kind = choose(st.integers(0, 2))
    mask = [] if kind < 2 else [floats(rows, keys)]
    return (
        f"attention {kind}",
        lambda q, k, v, *m: functional(q).scaled_dot_product_attention(q, k, v, *m, is_causal=kind == 1),
        [q, k, v, *mask],
    )


@st.composite
def einsum(choose: Draw) -> Case:
    letters = "abcde"
    size = {letter: choose(st.integers(1, 4)) for letter in letters}
    terms = choose(
        st.lists(
            st.lists(st.sampled_from(letters), max_size=3, unique=True).map("".join), min_size=1, max_size=3
        )
    )
    there = sorted(set("".join(terms)))
    out = "".join(choose(st.permutations(there))[: choose(st.integers(0, len(there)))])
    spec = f"{','.join(terms)}->{out}"
    operands = [  # positive, so that no sum cancels
        np.asarray(floats(*(size[letter] for letter in term)) + 2 + i, np.float32)
        for i, term in enumerate(terms)
    ]
    return spec, lambda *xs: lib(xs[0]).einsum(spec, *xs), operands


FAMILIES = (
    moving, joining, padding, picking, ordering, normalization, losses, windows, transposed_convolution,
    attention, einsum,
)  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_functions(family: Callable[[], st.SearchStrategy[Case]], device: str) -> None:
    @fuzzed
    @given(family(), st.sampled_from(sorted(set(LAYOUTS) - {"expanded"})))
    def check(case: Case, layout: str) -> None:
        label, call, arrays = case
        refusal: Exception | None = None
        try:
            call(*(torch.from_numpy(array.copy()) for array in arrays))
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            refusal = error
        try:
            if refusal is None:
                check_against_torch(device, call, *arrays, layout=layout)
                return
            with pytest.raises(Dl4allError):
                call(*(dl.tensor(array, device=device) for array in arrays))
        except (Exception, pytest.fail.Exception) as error:
            call_of = f"{label} of {[a.shape for a in arrays]}, {layout}"
            raise AssertionError(f"{call_of}: {error}; PyTorch says: {refusal}") from error

    check()
