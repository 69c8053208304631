"""Cross entropy and negative log-likelihood of rows of scores, and their gradients.

The classes of rows are int32; a negative one is that of a row that does not count.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.ops.core.host_kernel import HostLaunch, Layout, host_kernel
from dl4all.ops.core.launch import NoKernel
from dl4all.ops.host_kernels.batch_norm import check_contiguous
from dl4all.ops.host_kernels.lines import FIELDS, Geometry, Lines, Slots, each_line
from dl4all.ops.host_kernels.rows import grain_of, row_passes
from dl4all.ops.host_kernels.softmax import WORK, largest_and_sum
from dl4all.runtime.cpu.llvm import functions, provider
from dl4all.runtime.cpu.llvm.ir import Module, Value, vector

FLOATS = ("smoothing", "classes")


def _check(target: Any, *layouts: Layout | None) -> None:
    """
    Raises:
        NoKernel: targets are not int32 in memory, or the others not contiguous float32.
    """
    check_contiguous(*layouts)
    if not isinstance(target, Layout) or target.dtype != np.int32 or not target.is_contiguous():
        raise NoKernel("targets that are not int32 in memory")


def _launch(text: Any, x: Layout, arrays: dict[str, Layout | None], label_smoothing: float) -> HostLaunch:
    """The launch of a kernel for these arrays, those that are None left out."""
    geometry, across = Geometry.of_axis(*x.shape)
    names = tuple(name for name, layout in arrays.items() if layout is not None)
    constants = (*geometry, float(label_smoothing), float(x.shape[1]))
    key = (across, label_smoothing != 0, names)
    return HostLaunch(text, key, len(names), constants, work=WORK * x.numel())


@host_kernel("cross_entropy_each")
def prepare_cross_entropy(
    out: Layout, x: Layout, weight: Layout | None, target: Any, label_smoothing: float
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


@host_kernel("cross_entropy_backward")
def prepare_cross_entropy_backward(
    out: Layout, grad: Layout, x: Layout, weight: Layout | None, target: Any, label_smoothing: float
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


@host_kernel("nll_each")
def prepare_nll(out: Layout, x: Layout, weight: Layout | None, target: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous float32.
    """
    _check(target, x, weight)
    names = ("x", "target", "out") if weight is None else ("x", "weight", "target", "out")
    return HostLaunch(nll, (names,), len(names), (out.numel(), x.shape[1], x.shape[2]), work=2 * out.numel())


@host_kernel("nll_backward")
def prepare_nll_backward(out: Layout, grad: Layout, weight: Layout | None, target: Any, classes: int) -> HostLaunch:
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

    def __init__(self, lines: Lines, slots: Slots) -> None:
        code = lines.code
        self._lines, self._slots = lines, slots
        if lines.across:
            classes = code.load(slots["target"], lines.number, vector("i32", lines.lanes), lines.mask)
        else:
            classes = code.load(slots["target"], lines.number, "i32")
        self.classes = code.convert(classes, "i64")
        self.count = self.classes >= 0
        if lines.mask is not None:
            self.count = self.count & lines.mask
        self.counts = self.count if lines.across else code.splat(self.count, lines.lanes)

    def _places(self) -> Value:
        """Of the elements of the classes in the scores; of rows that do not count, that of class 0."""
        lines, code = self._lines, self._lines.code
        classes = code.select(self.count, self.classes, 0)
        if not lines.across:
            return lines.base + classes
        lane_numbers = code.lane_numbers("i64", lines.lanes) + lines.base
        return lane_numbers + classes * self._slots["stride"]

    def scores(self, x: Value) -> Value:
        """The elements of the classes."""
        lines, code = self._lines, self._lines.code
        if lines.across:
            return code.gather(x, self._places(), lines.type, self.counts)
        return code.splat(code.load(x, self._places(), "float"), lines.lanes)

    def weights(self) -> Value:
        """The weights of the classes, 1 without any."""
        lines, code = self._lines, self._lines.code
        if "weight" not in self._slots:
            return lines.number_like(1.0)
        classes = code.select(self.count, self.classes, 0)
        if lines.across:
            return code.gather(self._slots["weight"], classes, lines.type, self.counts)
        return code.splat(code.load(self._slots["weight"], classes, "float"), lines.lanes)

    def subtract(self, value: Value, out: Value) -> None:
        """Subtract a number from the elements of the classes of rows that count."""
        lines, code = self._lines, self._lines.code
        places = self._places()
        if not lines.across:
            with code.if_(self.count):
                code.store(code.load(out, places, "float") - code.extract(value, 0), out, places)
            return
        kept = code.gather(out, places, lines.type, self.counts)
        code.scatter(kept - value, out, places, self.counts)


def _class_weight(lines: Lines, slots: Slots, place: Value, mask: Value | None) -> Value:
    """The weights of the classes at a place of the scores."""
    code = lines.code
    offset = place - lines.base
    if not lines.across:
        return code.load(slots["weight"], offset, lines.type, mask)
    return code.splat(code.load(slots["weight"], offset // slots["stride"], "float"), lines.lanes)


def cross_entropy(across: bool, smooth: bool, arrays: tuple[str, ...]) -> Module:
    """The loss of each row. Floats: label smoothing, classes."""
    module = Module()
    with module.part("rows") as part:
        slots = Slots(part, arrays, FIELDS, FLOATS)

        def row(lines: Lines) -> None:
            x = slots["x"]
            most, total = largest_and_sum(lines, x)
            log_sum = functions.log(part, total) + 0.0
            targets = _Targets(lines, slots)
            factor = targets.weights()
            if smooth:
                factor = factor * lines.number_like(part.convert(1.0 - slots["smoothing"], "float"))
            loss = factor * (log_sum - (targets.scores(x) - most))
            loss = part.select(factor.equals(0.0), 0.0, loss)
            if smooth:
                sums = lines.sum("float", 1)

                def add(i: Value, mask: Value | None, copy: int) -> None:
                    term = log_sum - (part.load(x, i, lines.type, mask) - most)
                    if "weight" in slots:
                        weight = _class_weight(lines, slots, i, mask)
                        term = part.select(weight.equals(0.0), 0.0, term * weight)
                    sums.add(term, mask, copy)

                lines.each(add, sums=[sums])
                share = lines.number_like(part.convert(slots["smoothing"] / slots["classes"], "float"))
                loss = loss + part.convert(sums.total(), "float") * share
            loss = part.select(part.intrinsic("fabs", most) < math.inf, loss, math.nan)
            lines.put(part.select(targets.counts, loss, 0.0), slots["out"])

        each_line(part, slots, across, row)
    with module.kernel("cross_entropy") as code:
        given = Slots(code, arrays, FIELDS)
        code.parallel(part, code.parameters[0], given["count"], given["grain"])
    return module


def cross_entropy_backward(across: bool, smooth: bool, arrays: tuple[str, ...]) -> Module:
    """``grad * (softmax(x) * sum(expected) - expected)``. Floats: label smoothing, classes."""
    module = Module()
    with module.part("rows") as part:
        slots = Slots(part, arrays, FIELDS, FLOATS)

        def row(lines: Lines) -> None:
            x, out = slots["x"], slots["out"]
            _, total = largest_and_sum(lines, x, out)
            targets = _Targets(lines, slots)
            if "grad" in slots:
                grad = lines.value(slots["grad"])
            else:
                grad = part.splat(part.load(slots["grad of all"], 0, "float"), lines.lanes)
            factor = targets.weights()
            expected, share = factor, None
            if smooth:
                factor = factor * lines.number_like(part.convert(1.0 - slots["smoothing"], "float"))
                share = lines.number_like(part.convert(slots["smoothing"] / slots["classes"], "float"))
                weights = lines.number_like(part.convert(slots["classes"], "float"))
                if "weight" in slots:
                    sums = lines.sum("float", 1)

                    def add(i: Value, mask: Value | None, copy: int) -> None:
                        sums.add(_class_weight(lines, slots, i, mask), mask, copy)

                    lines.each(add, sums=[sums])
                    weights = part.convert(sums.total(), "float")
                expected = part.intrinsic("fmuladd", weights, share, factor)
            scale = expected / total

            def write(i: Value, mask: Value | None, copy: int) -> None:
                value = part.load(out, i, lines.type, mask) * scale
                if share is not None:
                    evenly = share * _class_weight(lines, slots, i, mask) if "weight" in slots else share
                    value = value - evenly
                part.store(part.select(targets.counts, value * grad, 0.0), out, i, mask)

            lines.each(write)
            targets.subtract(factor * grad, out)

        each_line(part, slots, across, row)
    with module.kernel("cross_entropy_backward") as code:
        given = Slots(code, arrays, FIELDS)
        code.parallel(part, code.parameters[0], given["count"], given["grain"])
    return module


# Negative log-likelihood


def nll(arrays: tuple[str, ...]) -> Module:
    """The negative of the element of each row's class. Integers: rows, classes, rows that lie side by side."""
    module = Module()
    with module.kernel("nll") as code:
        slots = Slots(code, arrays, ("rows", "classes", "inner"))
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


def nll_backward(arrays: tuple[str, ...]) -> Module:
    """Zeros, and at each row's class the negative gradient. Integers: samples, classes, inner, grain."""
    lanes = provider.processor().lanes()
    module, integers = Module(), ("samples", "classes", "inner", "grain")
    with module.part("samples") as part:
        slots = Slots(part, arrays, integers)
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
        given = Slots(code, arrays, integers)
        code.parallel(part, code.parameters[0], given["samples"], given["grain"])
    return module
