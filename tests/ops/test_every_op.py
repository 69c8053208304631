"""What holds for every op: generated from its declaration, so that a new op is tested by being declared."""

from __future__ import annotations

import inspect
import itertools
import logging
import operator
import re
from math import prod
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops import REGISTRY
from dl4all.ops.core import op as declaration
from dl4all.ops.core.dtypes import DTYPES, HALVES, kind_of
from dl4all.ops.core.kernels import launch
from dl4all.ops.core.op import Example, Op, example, register
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.declare import Elementwise
from dl4all.runtime.cpu.backend import CpuBackend
from dl4all.scheduler import fallback
from tests.support.numpy_bodies import device as device
from tests.support.operands import (
    CASES,
    LAYOUTS,
    NDArray,
    arrays,
    close,
    compare,
    completed,
    contiguous,
    draw,
    generator,
    numbers,
    operands_of,
    reference,
    transposed,
)
from tests.support.selection import VALIDATED
from tests.support.subcases import FULL, dealt, each, each_example

OPS = list(REGISTRY.values())
ELEMENTWISE = [op for op in OPS if isinstance(op, Elementwise)]
BINARY = [op for op in ELEMENTWISE if len(op.arrays) == 2 and "f" in op.kinds]
FLOATS = [op for op in OPS if not op.elementwise]


def name(value: object) -> str | None:
    return value.name if isinstance(value, Op) else None


def filled(_: Op[...], case: Example) -> bool:
    """Whether its first operand has elements."""
    return case.shapes[0] is not None and 0 not in case.shapes[0]


WRAPPED = {
    "max_pool2d", "adaptive_max_pool2d", "softmax", "log_softmax", "logsumexp", "std", "var",
}  # fmt: skip
"""Ops whose public function takes more than they do: ``return_indices``, ``dtype``, ``unbiased``."""

every_op = pytest.mark.parametrize("op", OPS, ids=name)


def memory(tensor: dl.Tensor) -> NDArray:
    """All bytes of a tensor's storage, those between its elements too."""
    data = np.empty(tensor.storage.nbytes, np.uint8)
    tensor.device.download(tensor.storage, data)
    return data


# Declarations


def test_every_op_is_complete() -> None:
    missing = []
    for op in OPS:
        text = inspect.getdoc(op) or ""
        if not op.examples:
            missing.append(f"{op.name} has no examples")
        if not text.split("\n")[0].endswith((".", ";")) and not text.split("\n\n")[0].endswith("."):
            missing.append(f"{op.name} has no sentence that says what it does")
        if "Example:\n" not in text or ">>> " not in text:
            missing.append(f"{op.name} has no Example section")
        if not op.elementwise and not ("Args:" in text and "Returns:" in text and "Raises:" in text):
            missing.append(f"{op.name} does not say what it takes, returns and raises")
        if op.kernel is None or not op.kernel.shaders:
            missing.append(f"{op.name} has no kernel")
    assert missing == []


def test_every_example_fits_its_signature() -> None:
    wrong = [
        f"{op.name}: {case}"
        for op, case in CASES
        if len(case.shapes) != len(op.arrays) or not {key for key, _ in case.arguments} <= set(op.arguments)
    ]
    assert wrong == []


@every_op
def test_examples_include_an_empty_one_and_a_prime_size(op: Op[...]) -> None:
    sizes = {size for case in op.examples for shape in case.shapes if shape for size in shape}
    assert 0 in sizes
    assert sizes & {5, 7, 11, 13, 67}


@every_op
def test_every_op_is_public(op: Op[...]) -> None:
    """Under ``dl.ops``; and where ``dl`` has it and a tensor has a method of its name, that is it too."""
    if op.name not in WRAPPED:
        assert getattr(dl.ops, op.name) is op
    assert op.name in dl.ops.__all__
    if getattr(dl, op.name, None) is op and op.name != "where":  # the method takes the condition second
        assert inspect.getattr_static(dl.Tensor, op.name, op) is op


def test_declaring_an_op_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[relu\] is declared twice: dl4all\.ops\.activation"):
        register(REGISTRY["relu"])


# Results


@each_example("layout", LAYOUTS, all_through_kompute=True)
def test_forward(op: Op[...], case: Example, layout: str, device: str) -> None:
    """Values, shape, dtype and device; the operands stay as they are and share nothing with the result."""
    tensors, elements = operands_of(op, case, LAYOUTS[layout], device)
    before = [memory(t) for t in tensors if t is not None]
    result = op(*tensors, **dict(case.arguments))
    compare(result, reference(op, list(elements), **dict(case.arguments)))
    assert result.device is dl.device(device)
    assert result.is_contiguous()
    assert type(result) is dl.Tensor
    given = [t for t in tensors if t is not None]
    for tensor, old in zip(given, before, strict=True):
        assert tensor.storage is not result.storage
        np.testing.assert_array_equal(memory(tensor), old)
    if device == "cpu":
        assert not any(np.shares_memory(result.numpy(), t.numpy()) for t in given)


def more_than_one_workgroup(_: Op[...], case: Example) -> bool:
    """Or all, in a full run."""
    return FULL or max(prod(shape) for shape in case.shapes if shape is not None) > 100


@pytest.mark.sampled(3)
@each_example(fits=more_than_one_workgroup, most=4)
def test_forward_with_fewer_workgroups_than_work(
    op: Op[...], case: Example, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels stride over what one grid does not hold, as they must for millions of elements."""
    monkeypatch.setattr(launch, "STRIDED_GRID_CAP", 2)
    tensors, elements = operands_of(op, case, contiguous, device)
    result = op(*tensors, **dict(case.arguments))
    compare(result, reference(op, list(elements), **dict(case.arguments)))


KEEPING_DIGITS = (
    "batch_norm_stats", "batch_norm_sums", "flash_attention", "grouped_norm_statistics", "grouped_norm_sums",
    "normalized_sums",
)  # fmt: skip
"""Their results are float32 for floats of 16 bits: statistics, sums of many terms and logsumexps."""


@pytest.mark.sampled(2)
@each_example("dtype", ["float64", "float16"], most=4)
def test_other_floats(op: Op[...], case: Example, dtype: str, device: str) -> None:
    """By way of the host or of float32; float16 is compared where its rounding does not add up."""
    tensors, elements = operands_of(op, case, transposed, device, dtype)
    result = op(*tensors, **dict(case.arguments))
    expected = reference(op, list(elements), **dict(case.arguments))
    if op.name in KEEPING_DIGITS and np.dtype(dtype) in HALVES:
        dtype = "float32"
    large = any(a is not None and a.size > 500 for a in elements)
    if dtype == "float16" and kind_of(expected.dtype) == "f" and large:
        assert (result.dtype, result.shape) == (np.float16, expected.shape)
        close(result.numpy().astype(np.float64), expected, 5e-2)
    else:
        compare(result, expected, dtype)


@pytest.mark.sampled(3)
@each_example("value", [np.nan, np.inf, -np.inf], fits=filled, most=4)
def test_special_values_go_through_as_in_numpy(op: Op[...], case: Example, value: float, device: str) -> None:
    elements = arrays(op, case)
    first = elements[0]
    assert first is not None
    if kind_of(first.dtype) in "iu":
        pytest.skip("integers have no special values")
    # One in the first place and one in the last, where a kernel's edges are.
    first.reshape(-1)[[0, -1]] = value
    tensors = [None if a is None else dl.tensor(a, device=device) for a in elements]
    expected = reference(op, list(elements), **dict(case.arguments))
    compare(op(*tensors, **dict(case.arguments)), expected)


@pytest.mark.parametrize("op", BINARY, ids=name)
@each("values", [(np.inf, -np.inf), (np.inf, 0.0), (0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (np.nan, 1.0)])
def test_special_pairs(op: Op[...], values: tuple[float, float], device: str) -> None:
    a, b = (np.array([v, 1.5, v], np.float32) for v in values)
    compare(op(dl.tensor(a, device=device), dl.tensor(b, device=device)), reference(op, [a, b]))
    compare(op(dl.tensor(a, device=device), values[1]), reference(op, [a, values[1]]))


# Element types


UNSIGNED_ARGUMENTS = {"hardtanh": {"min_val": 1.0, "max_val": 6.0}}
"""Where defaults are negative numbers."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", ELEMENTWISE, ids=name)
@each("dtype", DTYPES)
def test_elementwise_ops_take_every_dtype(op: Elementwise[...], dtype: np.dtype[Any], device: str) -> None:
    """Through Kompute, and under the validation layers, some dtypes, and other ones for the next op."""
    if (VALIDATED or device.startswith("kompute")) and dtype not in dealt(op.name, DTYPES, 3):
        return
    rng = generator(op.name, dtype)
    if kind_of(dtype) not in op.kinds:  # such as - of bools
        tensors = [dl.tensor(numbers(rng, (7, 5), dtype), device=device) for _ in op.arrays]
        with pytest.raises(DTypeError, match=rf"\[{op.name}\] {dtype} is not supported"):
            op(*tensors)
        return
    arguments: dict[str, Any] = UNSIGNED_ARGUMENTS.get(op.name, {}) if kind_of(dtype) == "u" else {}
    # The kernels of any strides, of contiguous operands, and of those that go by four.
    for shape, layout in (((7, 5), transposed), ((7, 5), contiguous), ((4, 6), contiguous)):
        given = [draw(op, name, rng, shape, dtype) for name in op.arrays]
        tensors = [layout(a, device)[0] for a in given]
        result = op(*tensors, **arguments)
        if kind_of(result.dtype) == "f":
            assert result.dtype == (dtype if kind_of(dtype) == "f" else np.float32)
            compare(result, reference(op, list(given)), result.dtype.name)
        elif op.result == "bool":
            assert result.dtype == np.bool_
            np.testing.assert_array_equal(result.numpy(), op.body(*given))
        else:
            assert result.dtype == dtype
            wide = [a.astype(np.int64) if a.dtype != np.bool_ else a for a in given]
            exact = np.asarray(op.body(*wide, **arguments))
            np.testing.assert_array_equal(result.numpy(), exact.astype(result.dtype))


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_large_integers_are_compared_whole(op: str, device: str, caplog: pytest.LogCaptureFixture) -> None:
    """As labels and indices are, which are int64: on the device, though few compute with 64 bits."""
    edges = [0, 1, -1, 2**31, 2**31 - 1, -(2**31), 2**32, 2**40 + 3, -(2**40), 2**63 - 1, -(2**63)]
    rng = generator(op)
    a, b = rng.choice(edges, (2, 13, 40))
    x, y = dl.tensor(a, device=device), dl.tensor(b, device=device)
    compared, body = REGISTRY[op], getattr(operator, op)
    with caplog.at_level(logging.WARNING, logger="dl4all"):
        np.testing.assert_array_equal(compared(x, y).numpy(), body(a, b))
        np.testing.assert_array_equal(compared(x.T, y.T[:, :1]).numpy(), body(a.T, b.T[:, :1]))
        for number in (*edges[:-2], 5):
            np.testing.assert_array_equal(compared(x, number).numpy(), body(a, number))
            np.testing.assert_array_equal(compared(number, x).numpy(), body(number, a))
        assert (x == y).sum().item() == (a == b).sum()
        assert (x == y).sum(0).tolist() == (a == b).sum(0).tolist()
    assert caplog.records == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", BINARY, ids=name)
@each("dtypes", itertools.combinations(("float32", "float64", "float16", "int32", "uint8"), 2))
def test_elementwise_ops_mix_dtypes(op: Elementwise[...], dtypes: tuple[str, str], device: str) -> None:
    rng = generator(op.name, dtypes)
    for first, second in (dtypes, dtypes[::-1]):
        a = draw(op, op.arrays[0], rng, (5, 7), first)
        b = draw(op, op.arrays[1], rng, (7,), second)
        result = op(dl.tensor(a, device=device), dl.tensor(b, device=device))
        if kind_of(result.dtype) == "f":
            compare(result, reference(op, [a, b]), result.dtype.name)
        elif op.result == "bool":
            np.testing.assert_array_equal(result.numpy(), op.body(a, b))
        else:
            exact = np.asarray(op.body(a.astype(np.int64), b.astype(np.int64)))
            np.testing.assert_array_equal(result.numpy(), exact.astype(result.dtype))


@pytest.mark.parametrize("op", FLOATS, ids=name)
@each("dtype", ["int64", "uint8", "bool"])
def test_other_dtypes_are_computed_or_refused(op: Op[...], dtype: str, device: str) -> None:
    arguments = dict(op.examples[0].arguments)
    tensors, elements = operands_of(op, op.examples[0], contiguous, device, dtype)
    try:
        result = op(*tensors, **arguments)
    except DTypeError as error:
        refusal = str(error)
    else:
        with np.errstate(all="ignore"):
            expected = np.asarray(op.body(*elements, **completed(op, arguments)))
        np.testing.assert_array_equal(result.numpy(), expected.astype(result.dtype))
        return
    assert re.search(rf"^\[{op.name}\] .*{dtype}", refusal)


@pytest.mark.parametrize("op", [o for o in FLOATS if len(o.arrays) > 1], ids=name)
def test_float_ops_refuse_mixed_dtypes(op: Op[...], device: str) -> None:
    tensors, _ = operands_of(op, op.examples[0], contiguous, device)
    assert tensors[-1] is not None
    tensors[-1] = tensors[-1].double()
    with pytest.raises(DTypeError, match=rf"\[{op.name}\] .*float32.*float64"):
        op(*tensors, **dict(op.examples[0].arguments))


def test_a_missing_kernel_is_logged_once(device: str, caplog: pytest.LogCaptureFixture) -> None:
    fallback.reset()
    x = dl.tensor([1, 2], dtype="int16", device=device)
    with caplog.at_level(logging.WARNING, logger="dl4all"):
        assert (x + x).tolist() == [2, 4]
        assert (x + x).tolist() == [2, 4]
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == (
        []
        if device == "cpu"
        else [
            f"[add] has no int16 kernel for {device} and runs on the CPU; convert with .float() to stay there"
        ]
    )


# Broadcasting and numbers

BROADCAST = [
    ((3, 5), (5,)), ((5,), (3, 5)), ((3, 1), (1, 5)), ((), (2, 3)), ((1,), ()), ((), ()), ((1, 1), (1,)),
    ((2, 3, 1, 5), (3, 7, 1)), ((7, 1, 5), (7, 3, 5)), ((2, 1, 1, 1), (2, 3, 5, 7)), ((1, 13), (11, 1)),
    ((2, 1, 3, 1, 5), (1, 2, 1, 3, 1)), ((2, 1, 3, 1, 2, 1, 3), (3, 1, 2, 1, 5, 1)),
    ((2, 1) * 4, (1, 2) * 4), ((2, 1) * 5, (1, 2) * 5),
    ((0,), (3, 1)), ((3, 0, 1), (1, 5)), ((0, 1), (0, 7)), ((1,), (0,)),
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", BINARY, ids=name)
@each("left, right", BROADCAST)
def test_broadcasting(op: Op[...], left: tuple[int, ...], right: tuple[int, ...], device: str) -> None:
    rng = generator(op.name, left, right)
    a, b = numbers(rng, left), numbers(rng, right)
    for layout in (contiguous, transposed):
        result = op(layout(a, device)[0], layout(b, device)[0])
        compare(result, reference(op, [a, b]))


@pytest.mark.parametrize("op", BINARY, ids=name)
@each("left, right", [((2, 3), (2,)), ((3, 5), (3, 4)), ((0,), (2,)), ((2, 1), (3, 1))])
def test_shapes_that_do_not_broadcast(
    op: Op[...], left: tuple[int, ...], right: tuple[int, ...], device: str
) -> None:
    a, b = dl.zeros(*left, device=device), dl.zeros(*right, device=device)
    with pytest.raises(ShapeError) as caught:
        op(a, b)
    assert f"[{op.name}] shapes {left} and {right} do not broadcast" in str(caught.value)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", BINARY, ids=name)
@each(
    "number",
    [
        2,
        -1.5,
        0.1,
        True,
        10**9,
        1e300,
        np.float32(0.3),
        np.float64(0.3),
        np.int64(3),
        np.inf,
        -np.inf,
        np.nan,
    ],
)
def test_numbers_on_either_side(op: Op[...], number: Any, device: str) -> None:
    """A number is rounded to float32 as an array's element is, and never widens the result."""
    array = numbers(generator(op.name), (5, 7))
    with np.errstate(all="ignore"):
        rounded = np.float64(np.float32(number))
    for layout in (contiguous, transposed):
        tensor, _ = layout(array, device)
        compare(op(tensor, number), reference(op, [array, rounded]))
        compare(op(number, tensor), reference(op, [rounded, array]))


@pytest.mark.parametrize("op", BINARY, ids=name)
def test_numbers_that_fit_nowhere(op: Elementwise[...], device: str) -> None:
    wide = dl.tensor([1.0, 2.0], device=device)
    with pytest.raises(ArgumentError, match=rf"\[{op.name}\] the number 1000.* does not fit into float32"):
        op(wide, 10**400)
    if op.promotion != "float":
        with pytest.raises(ArgumentError, match=rf"\[{op.name}\] the number 300 does not fit into int8"):
            op(300, dl.tensor([1], dtype="int8", device=device))
        with pytest.raises(ArgumentError, match=rf"\[{op.name}\] the number -1 does not fit into uint8"):
            op(dl.tensor([1], dtype="uint8", device=device), -1)


# Refusals


@pytest.mark.parametrize("op", [o for o in OPS if len(o.arrays) > 1], ids=name)
def test_mixed_devices(op: Op[...], device: str) -> None:
    elsewhere = dl.Device.of_backend("elsewhere", CpuBackend())
    tensors, _ = operands_of(op, op.examples[0], contiguous, device)
    for place in range(1, len(tensors)):
        mixed: list[Any] = list(tensors)
        mixed[place] = dl.tensor(mixed[place].numpy(), device=elsewhere)
        with pytest.raises(ArgumentError) as caught:
            op(*mixed, **dict(op.examples[0].arguments))
        assert f"[{op.name}] operands live on different devices, {device} and elsewhere" in str(caught.value)


@pytest.mark.sampled(3)
@every_op
@each("wrong", [[1.0, 2.0], np.ones(3, np.float32), "x", 1j, object()])
def test_operands_that_are_no_tensors(op: Op[...], wrong: Any, device: str) -> None:
    tensors, _ = operands_of(op, op.examples[0], contiguous, device)
    for place, operand in enumerate(op.arrays):
        mixed: list[Any] = list(tensors)
        mixed[place] = wrong
        with pytest.raises(DTypeError) as caught:
            op(*mixed, **dict(op.examples[0].arguments))
        expected = f"[{op.name}] expected a tensor for '{operand}', got {type(wrong).__name__}"
        assert expected in str(caught.value)


@every_op
def test_none_stands_only_for_optional_operands(op: Op[...], device: str) -> None:
    tensors, _ = operands_of(op, op.examples[0], contiguous, device)
    for place, operand in enumerate(op.arrays):
        if operand in op.optional:
            continue
        mixed: list[Any] = list(tensors)
        mixed[place] = None
        with pytest.raises(
            DTypeError, match=rf"\[{op.name}\] expected a tensor for '{operand}', got NoneType"
        ):
            op(*mixed, **dict(op.examples[0].arguments))


@pytest.mark.parametrize("op", BINARY, ids=name)
def test_numbers_alone(op: Op[...]) -> None:
    with pytest.raises(DTypeError, match=rf"\[{op.name}\] expected a tensor, got only numbers"):
        op(1.0, 2)


@every_op
def test_unknown_and_missing_arguments(op: Op[...]) -> None:
    tensors, _ = operands_of(op, op.examples[0], contiguous, "cpu")
    with pytest.raises(TypeError, match="unexpected"):
        op(*tensors, **dict(op.examples[0].arguments), colour=1)
    with pytest.raises(TypeError, match="missing"):
        op()


# Ops without a kernel


def test_a_declaration_may_do_without_a_kernel(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr("dl4all.ops.core.op.REGISTRY", {})

    @declaration.op(infer=lambda x: ((len(x.shape),), np.dtype("int64")), examples=(example((3,)),))
    def shape_of(x: Array) -> Array:
        """The shape as numbers."""
        return np.array(x.shape)

    result = shape_of(dl.zeros(2, 5, device=device))
    assert (result.tolist(), str(result.device)) == ([2, 5], device)


@pytest.mark.parametrize("part", [np.s_[:], np.s_[::-1], np.s_[:0]], ids=str)
def test_a_body_may_return_a_view(part: Any, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """The result has memory of its own all the same."""
    monkeypatch.setattr("dl4all.ops.core.op.REGISTRY", {})

    @declaration.op(infer=lambda x: (np.empty(x.shape)[part].shape, x.dtype), examples=(example((3,)),))
    def part_of(x: Array) -> Array:
        """Some elements."""
        return x[part]

    x = dl.tensor([1.0, 2.0, 3.0], device=device)
    result = part_of(x)
    assert result.tolist() == np.array([1, 2, 3])[part].tolist()
    assert result.storage is not x.storage
    assert not np.shares_memory(result.numpy(), x.numpy())
