"""Steps that follow the sums of a convolution in its kernel: a bias, and an elementwise program.

The program's first tensor is the sums. Others lie like the result, or have a number for each filter. Its last
result takes the place of the sums; those before it are written beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dl4all.host_kernels.elementwise.elementwise import (
    ElementwiseProgram,
    broadcast,
    check_program,
    codes_of,
    constants_of,
    number_value,
    program_results,
    work_of,
)
from dl4all.ops.core.kernels.host_kernel import NO_CODES, ArrayLayout, HostLaunch
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue

if TYPE_CHECKING:
    from dl4all.host_kernels.conv.slots import KernelSlots


class SumsEpilogue(NamedTuple):
    """The form of what follows sums."""

    bias: bool = False
    program: ElementwiseProgram | None = None
    by_filter: tuple[bool, ...] = ()
    """Of the program's tensors behind the sums, whether they have a number for each filter."""

    @property
    def tensors(self) -> list[str]:
        """The names of slots with addresses: of what is read, then of what is written beside the result."""
        results = len(self.program.results) - 1 if self.program else 0
        return [f"operand{i}" for i in range(len(self.by_filter))] + [f"result{i}" for i in range(results)]

    @property
    def numbers(self) -> list[str]:
        """The names of slots with numbers: distances of numbers of filters, and the program's."""
        count = len(self.program.numbers) if self.program else 0
        return [f"distance{i}" for i in range(len(self.by_filter))] + [f"number{i}" for i in range(count)]


class Following(NamedTuple):
    """An elementwise program that follows the sums of a launch."""

    program: ElementwiseProgram
    tensors: Sequence[ArrayLayout]
    """Layouts of those that it reads, the sums first, and of those that it writes, the result last."""
    numbers: Sequence[Any]
    """With which it runs; they may be others in each call."""

    def epilogue(self, out: ArrayLayout, *, bias: bool) -> tuple[SumsEpilogue, list[int]]:
        """The form of the epilogue of sums with this layout, and the distances of numbers of filters.

        Raises:
            NoKernel: tensors lie in other ways, or have another dtype.
        """
        check_program(self.program)
        read = len(self.program.tensors)
        if any(layout.dtype != out.dtype for layout in self.tensors):
            raise NoKernel("sums and tensors of several dtypes")
        if any(one.shape != out.shape or not one.is_contiguous() for one in self.tensors[read:]):
            raise NoKernel("results that lie in other ways")
        by_filter, distances = [], []
        for layout in self.tensors[1:read]:
            strides = broadcast(layout, out.shape)
            like_result = layout.shape == out.shape and layout.is_contiguous()
            of_filters = all(
                stride == 0 or size == 1 or axis == 1
                for axis, (stride, size) in enumerate(zip(strides, out.shape, strict=True))
            )
            if not like_result and not of_filters:
                raise NoKernel("tensors that lie in other ways")
            by_filter.append(of_filters)
            distances.append(strides[1] if of_filters else 0)
        return SumsEpilogue(bias, self.program, tuple(by_filter)), distances


def launch_with_epilogue(
    kernel: Callable[..., IrModule],
    form: tuple[Any, ...],
    operands: int,
    constants: Sequence[int],
    out: ArrayLayout,
    following: Following | None,
    *,
    bias: bool,
    others: Sequence[int] = (),
    scratch: int,
    work: int,
) -> HostLaunch:
    """The launch of a kernel whose sums are followed by a bias or a program, if there are any.

    Its addresses are those of the operands, of what the program reads and writes beside the sums, and of the
    result.

    Args:
        kernel: writes the kernel's module, from the form and that of the epilogue.
        form: what else the module depends on.
        operands: how many there are; the bias is the last of them.
        constants: slots ahead of the epilogue's.
        out: layout of the result.
        following: what is computed of the sums.
        bias: whether there is a number for each filter.
        others: slots behind the epilogue's.
        scratch, work: of the launch, the program left out.

    Raises:
        NoKernel: the program does not follow the sums.
    """
    epilogue, distances = following.epilogue(out, bias=bias) if following else (SumsEpilogue(bias), [])
    head = (*constants, *distances)
    numbers = constants_of(following.program, following.numbers) if following else []
    places = range(len(head), len(head) + len(numbers))
    return HostLaunch(
        kernel,
        (*form, epilogue),
        operands + len(epilogue.tensors) + 1,
        (*head, *numbers, *others),
        scratch=scratch,
        work=work + (work_of(following.program) * math.prod(out.shape) if following else 0),
        numbers=places,
        codes=codes_of(following.program, places) if following else NO_CODES,
    )


Finished = Callable[[IrValue, IrValue, IrValue | None], IrValue]
"""Gives the vector that is stored for one of sums, which lies at a place behind the target, under a mask."""


def epilogue(
    code: Code,
    slots: KernelSlots,
    form: SumsEpilogue,
    element: str,
    row: IrValue,
    target: IrValue,
    lanes: int,
) -> Finished:
    """Write what the sums of a row have in common.

    Args:
        code: is written to.
        slots: of the kernel.
        form: of the epilogue.
        element: the type of numbers.
        row: number of the filter.
        target: address in the result of what is stored there.
        lanes: of vectors.
    """
    bias, program, by_filter = form
    start, here = (code.emit("i64", f"ptrtoint {p!r} to i64") for p in (slots.read(code, "out"), target))

    def like_result(name: str) -> IrValue:
        return code.at(slots.read(code, name), here - start, "i8")

    def of_filter(name: str, distance: str) -> IrValue:
        number = code.load(slots.read(code, name), row * slots.read(code, distance), element)
        return code.splat(number, lanes)

    added = of_filter("bias", "bias_stride") if bias else None
    operands = [
        of_filter(f"operand{i}", f"distance{i}") if single else like_result(f"operand{i}")
        for i, single in enumerate(by_filter)
    ]
    beside = [like_result(f"result{i}") for i in range(len(program.results) - 1)] if program else []

    numbers = [
        number_value(code, slots.numbers[f"number{n}"], kind, lanes)
        for n, kind in enumerate(program.numbers if program else ())
    ]

    def finished(sums: IrValue, i: IrValue, mask: IrValue | None) -> IrValue:
        if added is not None:
            sums = sums + added
        if program is None:
            return sums
        values = [
            operand if single else code.load(operand, i, sums.type, mask)
            for operand, single in zip(operands, by_filter, strict=True)
        ]
        *others, last = program_results(code, program, [sums, *values], numbers, lanes)
        for other, address in zip(others, beside, strict=True):
            code.store(other, address, i, mask)
        return last

    return finished
