"""Cross entropy and negative log-likelihood of rows of scores, and their gradients.

The classes of rows are int32; a negative one is that of a row that does not count.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.host_kernels.lib.lines import FIELDS, LineGeometry, Lines, LineSlots, each_line
from dl4all.host_kernels.lib.rows import grain_of, row_passes
from dl4all.host_kernels.normalization.batch_norm import check_contiguous
from dl4all.host_kernels.normalization.softmax import WORK, largest_and_sum
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.loss.classification import three_axes
from dl4all.runtime.cpu.llvm import functions, provider
from dl4all.runtime.cpu.llvm.ir import IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import LLVM_TYPES, vector

MOST_PARTS = 256
"""Chunks, each with sums of its own."""

FLOATS = ("smoothing", "classes")


def _check(target: Any, *layouts: ArrayLayout | None) -> None:
    """
    Raises:
        NoKernel: targets are not int32 in memory, or the others not contiguous float32.
    """
    check_contiguous(*layouts)
    if not isinstance(target, ArrayLayout) or target.dtype != np.int32 or not target.is_contiguous():
        raise NoKernel("targets that are not int32 in memory")


def _launch(
    text: Any, x: ArrayLayout, arrays: dict[str, ArrayLayout | None], label_smoothing: float
) -> HostLaunch:
    """The launch of a kernel for these arrays, those that are None left out."""
    geometry, across = LineGeometry.of_axis(*x.shape)
    names = tuple(name for name, layout in arrays.items() if layout is not None)
    constants = (*geometry, float(label_smoothing), float(x.shape[1]))
    key = (across, label_smoothing != 0, names)
    return HostLaunch(text, key, len(names), constants, work=WORK * x.numel())


@host_kernel("cross_entropy_each", copies=True)
def prepare_cross_entropy(
    out: ArrayLayout, x: ArrayLayout, weight: ArrayLayout | None, target: Any, label_smoothing: float
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous float32, or there are no classes.
    """
    _check(target, x, weight)
    if not x.shape[1]:
        raise NoKernel("no classes")
    arrays = {"x": x, "weight": weight, "target": target, "out": out}
    return _launch(cross_entropy, x, arrays, label_smoothing)


@host_kernel("cross_entropy_backward", copies=True)
def prepare_cross_entropy_backward(
    out: ArrayLayout,
    grad: ArrayLayout,
    x: ArrayLayout,
    weight: ArrayLayout | None,
    target: Any,
    label_smoothing: float,
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous float32.
    """
    if grad.dtype == np.float32 and not any(grad.strides):  # one number for all rows, as from a mean
        _check(target, x, weight)
        arrays = {"grad of all": grad, "x": x, "weight": weight, "target": target, "out": out}
    else:
        _check(target, grad, x, weight)
        arrays = {"grad": grad, "x": x, "weight": weight, "target": target, "out": out}
    return _launch(cross_entropy_backward, x, arrays, label_smoothing)


@host_kernel("nll_each", copies=True)
def prepare_nll(out: ArrayLayout, x: ArrayLayout, weight: ArrayLayout | None, target: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous float32.
    """
    _check(target, x, weight)
    names = ("x", "target", "out") if weight is None else ("x", "weight", "target", "out")
    return HostLaunch(nll, (names,), len(names), (out.numel(), x.shape[1], x.shape[2]), work=2 * out.numel())


@host_kernel("nll_backward", copies=True)
def prepare_nll_backward(
    out: ArrayLayout, grad: ArrayLayout, weight: ArrayLayout | None, target: Any, classes: int
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous float32.
    """
    _check(target, grad, weight)
    names = ("grad", "target", "out") if weight is None else ("grad", "weight", "target", "out")
    samples, _, inner = out.shape
    constants = (samples, classes, inner, grain_of(classes * inner))
    return HostLaunch(nll_backward, (names,), len(names), constants, work=out.numel())


# Cross entropy


class _Targets:
    """The classes of the rows at hand: of one row, or one in each lane."""

    def __init__(self, lines: Lines, slots: LineSlots, element: str = "i32") -> None:
        code = lines.code
        self._lines, self._slots = lines, slots
        if lines.across:
            classes = code.load(slots["target"], lines.number, vector(element, lines.lanes), lines.mask)
        else:
            classes = code.load(slots["target"], lines.number, element)
        self.classes = code.convert(classes, "i64")
        self.count = self.classes >= 0
        if "ignored" in slots:
            ends = code.as_value(self.classes.type, slots["segments"] if lines.across else slots["width"])
            self.count = code.unsigned_less(self.classes, ends)
            considered = self.classes.differs(slots["ignored"])
            self.wrong = considered & ~self.count
            self.count = self.count & considered
        if lines.mask is not None:
            self.count = self.count & lines.mask
        self.counts = self.count if lines.across else code.splat(self.count, lines.lanes)

    def _places(self) -> IrValue:
        """Of the elements of the classes in the scores; of rows that do not count, that of class 0."""
        lines, code = self._lines, self._lines.code
        classes = code.select(self.count, self.classes, 0)
        if not lines.across:
            return lines.base + classes
        lane_numbers = code.lane_numbers("i64", lines.lanes) + lines.base
        return lane_numbers + classes * self._slots["stride"]

    def scores(self, x: IrValue) -> IrValue:
        """The elements of the classes."""
        lines, code = self._lines, self._lines.code
        if lines.across:
            return code.gather(x, self._places(), lines.type, self.counts)
        return code.splat(code.load(x, self._places(), "float"), lines.lanes)

    def weights(self) -> IrValue:
        """The weights of the classes, 1 without any."""
        lines, code = self._lines, self._lines.code
        if "weight" not in self._slots:
            return lines.number_like(1.0)
        classes = code.select(self.count, self.classes, 0)
        if lines.across:
            return code.gather(self._slots["weight"], classes, lines.type, self.counts)
        return code.splat(code.load(self._slots["weight"], classes, "float"), lines.lanes)

    def subtract(self, value: IrValue, out: IrValue) -> None:
        """Subtract a number from the elements of the classes of rows that count."""
        lines, code = self._lines, self._lines.code
        places = self._places()
        if not lines.across:
            with code.if_(self.count):
                code.store(code.load(out, places, "float") - code.extract(value, 0), out, places)
            return
        kept = code.gather(out, places, lines.type, self.counts)
        code.scatter(kept - value, out, places, self.counts)


def _class_weight(lines: Lines, slots: LineSlots, place: IrValue, mask: IrValue | None) -> IrValue:
    """The weights of the classes at a place of the scores."""
    code = lines.code
    offset = place - lines.base
    if not lines.across:
        return code.load(slots["weight"], offset, lines.type, mask)
    return code.splat(code.load(slots["weight"], offset // slots["stride"], "float"), lines.lanes)


def cross_entropy(across: bool, smooth: bool, arrays: tuple[str, ...]) -> IrModule:
    """The loss of each row. Floats: label smoothing, classes."""
    module = IrModule()
    with module.part("rows") as part:
        slots = LineSlots(part, arrays, FIELDS, FLOATS)

        def row(lines: Lines) -> None:
            targets = _Targets(lines, slots)
            lines.put(_losses(lines, slots, targets, targets.weights(), smooth), slots["out"])

        each_line(part, slots, across, row)
    with module.kernel("cross_entropy") as code:
        given = LineSlots(code, arrays, FIELDS)
        code.parallel(part, code.parameters[0], given["lines"], given["grain"])
    return module


def _losses(lines: Lines, slots: LineSlots, targets: _Targets, weights: IrValue, smooth: bool) -> IrValue:
    """The loss of the row, or those of the rows in lanes; 0 for rows that do not count."""
    code, x = lines.code, slots["x"]
    most, total = largest_and_sum(lines, x)
    log_sum = functions.log(code, total)
    factor = weights
    if smooth:
        factor = factor * lines.number_like(code.convert(1.0 - slots["smoothing"], "float"))
    loss = factor * (log_sum - (targets.scores(x) - most))
    loss = code.select(factor.equals(0.0), 0.0, loss)
    if smooth:
        sums = lines.sum("float", 1)

        def add(i: IrValue, mask: IrValue | None, copy: int) -> None:
            term = log_sum - (code.load(x, i, lines.type, mask) - most)
            if "weight" in slots:
                weight = _class_weight(lines, slots, i, mask)
                term = code.select(weight.equals(0.0), 0.0, term * weight)
            sums.add(term, mask, copy)

        lines.each(add, sums=[sums])
        share = lines.number_like(code.convert(slots["smoothing"] / slots["classes"], "float"))
        loss = loss + code.convert(sums.total(), "float") * share
    loss = code.select(code.intrinsic("fabs", most) < math.inf, loss, math.nan)
    return code.select(targets.counts, loss, 0.0)


def cross_entropy_backward(
    across: bool, smooth: bool, arrays: tuple[str, ...], element: str = "i32", mean: bool = False
) -> IrModule:
    """``grad * (softmax(x) * sum(expected) - expected)``. Floats: label smoothing, classes.

    With a state the gradient is that of the sum of all rows, or of their mean; integers go on with the class
    that is ignored.
    """
    module = IrModule()
    integers = (*FIELDS, "ignored") if "state" in arrays else FIELDS
    with module.part("rows") as part:
        slots = LineSlots(part, arrays, integers, FLOATS)

        def row(lines: Lines) -> None:
            x, out = slots["x"], slots["out"]
            _, total = largest_and_sum(lines, x, out)
            targets = _Targets(lines, slots, element)
            if "grad" in slots:
                grad = lines.value(slots["grad"])
            else:
                number = part.load(slots["grad of all"], 0, "float")
                grad = part.splat(
                    number / part.load(slots["state"], 0, "float") if mean else number, lines.lanes
                )
            factor = targets.weights()
            expected, share = factor, None
            if smooth:
                factor = factor * lines.number_like(part.convert(1.0 - slots["smoothing"], "float"))
                share = lines.number_like(part.convert(slots["smoothing"] / slots["classes"], "float"))
                weights = lines.number_like(part.convert(slots["classes"], "float"))
                if "weight" in slots:
                    sums = lines.sum("float", 1)

                    def add(i: IrValue, mask: IrValue | None, copy: int) -> None:
                        sums.add(_class_weight(lines, slots, i, mask), mask, copy)

                    lines.each(add, sums=[sums])
                    weights = part.convert(sums.total(), "float")
                expected = part.intrinsic("fmuladd", weights, share, factor)
            scale = expected / total

            def write(i: IrValue, mask: IrValue | None, copy: int) -> None:
                value = part.load(out, i, lines.type, mask) * scale
                if share is not None:
                    evenly = share * _class_weight(lines, slots, i, mask) if "weight" in slots else share
                    value = value - evenly
                part.store(part.select(targets.counts, value * grad, 0.0), out, i, mask)

            lines.each(write)
            targets.subtract(factor * grad, out)

        each_line(part, slots, across, row)
    with module.kernel("cross_entropy_backward") as code:
        given = LineSlots(code, arrays, FIELDS)
        code.parallel(part, code.parameters[0], given["lines"], given["grain"])
    return module


# The mean or sum over all rows


def _reduced_launch(
    text: Any,
    arrays: dict[str, ArrayLayout | None],
    ignore_index: int,
    mean: bool,
    label_smoothing: float,
    most_parts: int = 0,
) -> HostLaunch:
    x, target = arrays["x"], arrays["target"]
    assert x is not None
    assert target is not None
    check_contiguous(*(layout for name, layout in arrays.items() if name != "target"))
    if target.dtype.name not in ("int32", "int64") or not target.is_contiguous():
        raise NoKernel("targets that are neither int32 nor int64 in memory")
    geometry, across = LineGeometry.of_axis(*three_axes(x.shape))
    scratch = 0
    if most_parts:
        geometry = geometry._replace(grain=max(geometry.grain, -(-geometry.lines // most_parts)))
        scratch = 8 * 3 * -(-geometry.lines // geometry.grain)
    names = tuple(name for name, layout in arrays.items() if layout is not None)
    constants = (*geometry, ignore_index, float(label_smoothing), float(three_axes(x.shape)[1]))
    key = (across, label_smoothing != 0, names, LLVM_TYPES[target.dtype.name], mean)
    return HostLaunch(text, key, len(names), constants, scratch=scratch, work=WORK * x.numel())


@host_kernel("cross_entropy_loss")
def prepare_loss(
    ignore_index: int, mean: bool, label_smoothing: float, reads: list[ArrayLayout], writes: list[ArrayLayout]
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not contiguous, or of other dtypes.
    """
    x, target, *weight = reads
    arrays = {
        "x": x,
        "target": target,
        "weight": weight[0] if weight else None,
        "out": writes[0],
        "state": writes[1],
    }
    return _reduced_launch(cross_entropy_loss, arrays, ignore_index, mean, label_smoothing, MOST_PARTS)


@host_kernel("cross_entropy_loss_backward")
def prepare_loss_backward(
    ignore_index: int, mean: bool, label_smoothing: float, reads: list[ArrayLayout], writes: list[ArrayLayout]
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not contiguous, or of other dtypes.
    """
    x, target, grad, state, *weight = reads
    arrays = {
        "x": x, "target": target, "grad of all": grad, "state": state,
        "weight": weight[0] if weight else None, "out": writes[0],
    }  # fmt: skip
    return _reduced_launch(cross_entropy_backward, arrays, ignore_index, mean, label_smoothing)


def cross_entropy_loss(
    across: bool, smooth: bool, arrays: tuple[str, ...], element: str, mean: bool
) -> IrModule:
    """The loss of all rows; their weight and the number of targets that are no classes go to the state.

    Parts of the three sums are in the scratch memory, one of each for a chunk.
    """
    module = IrModule()
    names, integers = (*arrays, "scratch"), (*FIELDS, "ignored")
    with module.part("rows") as part:
        slots = LineSlots(part, names, integers, FLOATS)
        type = vector("double", provider.processor().lanes()) if across else "double"
        sums = [part.variable(type, 0.0) for _ in range(3)]

        def row(lines: Lines) -> None:
            targets = _Targets(lines, slots, element)
            weights = targets.weights()
            losses = _losses(lines, slots, targets, weights, smooth)
            weights = part.select(targets.counts, weights, 0.0)
            wrong = targets.wrong if lines.mask is None else targets.wrong & lines.mask
            for total, value in zip(sums, (losses, weights, part.convert(wrong, "double")), strict=True):
                one = value if across or "<" not in value.type else part.extract(value, 0)
                total.value = total.value + part.convert(one, "double")

        each_line(part, slots, across, row)
        first = part.parameters[1] // slots["grain"] * 3
        for number, total in enumerate(sums):
            part.store(part.sum_of(total.value) if across else total.value, slots["scratch"], first + number)
    with module.kernel("cross_entropy_loss") as code:
        given = LineSlots(code, names, integers)
        count, grain = given["lines"], given["grain"]
        code.parallel(part, code.parameters[0], count, grain)
        sums = [code.variable("double", 0.0) for _ in range(3)]
        with code.loop(0, (count + (grain - 1)) // grain) as i:
            for number, total in enumerate(sums):
                total.value = total.value + code.load(given["scratch"], i * 3 + number, "double")
        loss, weight, wrong = (total.value for total in sums)
        code.store(code.convert(loss / weight if mean else loss, "float"), given["out"], 0)
        code.store(code.convert(weight, "float"), given["state"], 0)
        code.store(code.convert(wrong, "float"), given["state"], 1)
    return module


# Negative log-likelihood


def nll(arrays: tuple[str, ...]) -> IrModule:
    """The negative of the element of each row's class. Integers: rows, classes, rows side by side."""
    module = IrModule()
    with module.kernel("nll") as code:
        slots = LineSlots(code, arrays, ("rows", "classes", "inner"))
        inner = slots["inner"]
        with code.loop(0, slots["rows"]) as row:
            target = code.convert(code.load(slots["target"], row, "i32"), "i64")
            code.store(code.constant("float", 0.0), slots["out"], row)
            with code.if_(target >= 0):
                place = (row // inner * slots["classes"] + target) * inner + row % inner
                value = -code.load(slots["x"], place, "float")
                if "weight" in slots:
                    value = value * code.load(slots["weight"], target, "float")
                code.store(value, slots["out"], row)
    return module


def nll_backward(arrays: tuple[str, ...]) -> IrModule:
    """Zeros, and at each row's class the negative gradient. Integers: samples, classes, inner, grain."""
    lanes = provider.processor().lanes()
    module, integers = IrModule(), ("samples", "classes", "inner", "grain")
    with module.part("samples") as part:
        slots = LineSlots(part, arrays, integers)
        _, begin, end = part.parameters
        inner, out = slots["inner"], slots["out"]
        size = slots["classes"] * inner
        zeros = part.constant(vector("float", lanes), 0.0)
        with part.loop(begin, end) as sample:
            base = sample * size
            row_passes(part, size, lanes, lambda i, mask: part.store(zeros, out, base + i, mask))
            with part.loop(0, inner) as j:
                row = sample * inner + j
                target = part.convert(part.load(slots["target"], row, "i32"), "i64")
                with part.if_(target >= 0):
                    value = -part.load(slots["grad"], row, "float")
                    if "weight" in slots:
                        value = value * part.load(slots["weight"], target, "float")
                    part.store(value, out, base + target * inner + j)
    with module.kernel("nll_backward") as code:
        given = LineSlots(code, arrays, integers)
        code.parallel(part, code.parameters[0], given["samples"], given["grain"])
    return module
