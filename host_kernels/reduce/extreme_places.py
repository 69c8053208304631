"""argmax and argmin: the place of the first extreme, or of the first nan."""

from __future__ import annotations

from dl4all.host_kernels.reduce.reduction_units import KINDS, WIDE, Types, Units, folded
from dl4all.host_kernels.reduce.reductions import geometry, lanes_for, partition, types_of
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import SIZES, vector

LARGEST_PLACE = 2**31 - 1


@host_kernel("argmax")
def prepare_argmax(out: ArrayLayout, x: ArrayLayout, dim: int | None, keepdim: bool) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`place_launch`.
    """
    return place_launch("amax", out, x, dim)


@host_kernel("argmin")
def prepare_argmin(out: ArrayLayout, x: ArrayLayout, dim: int | None, keepdim: bool) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`place_launch`.
    """
    return place_launch("amin", out, x, dim)


def place_launch(kind: str, out: ArrayLayout, x: ArrayLayout, dim: int | None) -> HostLaunch:
    """
    Raises:
        NoKernel: there are too many axes or elements, or those of an array without gaps are not in order.
    """
    ndim = len(x.shape)
    if dim is None and not x.is_contiguous():
        raise NoKernel("places count the elements in row-major order")
    axes = range(ndim) if dim is None else (dim % ndim,) if ndim else ()
    g = geometry(x, tuple(axes))
    if g.terms > LARGEST_PLACE:
        raise NoKernel("too many elements")
    types = types_of(kind, x.dtype, out.dtype)
    lanes = lanes_for(g, max(4, SIZES[types.total]))
    constants, _ = partition(g, lanes, divides=False)
    key = (kind, types, g.vertical, lanes, g.counts)
    return HostLaunch(extreme_places, key, 2, constants, work=g.results * g.terms)


def extreme_places(kind: str, types: Types, vertical: bool, lanes: int, counts: bool) -> IrModule:
    """Slots and parameters as of :func:`dl4all.host_kernels.reduce.reduction_units.reduction`."""
    module = IrModule()
    with module.part("units") as code:
        PlaceUnits(code, kind, types, lanes).write(vertical, counts)
        units = code
    with module.kernel("extreme_places") as code:
        code.parallel(units, code.parameters[0], code.slot(2), code.slot(3))
    return module


class PlaceUnits(Units):
    """Units whose results are places. Each lane keeps the best element so far, and where it was."""

    def __init__(self, code: Code, kind: str, types: Types, lanes: int) -> None:
        super().__init__(code, KINDS[kind], types, lanes, split=False)
        self.test = "gt" if kind == "amax" else "lt"
        self.place_type = vector("i32", lanes)
        self.places = [code.variable(self.place_type, 0) for _ in range(WIDE)]

    def begin(self) -> None:
        """Before the first element, the lowest value counts as found at place 0."""
        for best, place in zip(self.sums, self.places, strict=True):
            best.value = self.start
            place.value = 0

    def take(self, j: int, x: IrValue, at: IrValue, mask: IrValue | None = None) -> None:
        """Keep an element that is better than the best so far."""
        code, best = self.code, self.sums[j].value
        better = code.compare(f"u{self.test}", f"s{self.test}", x, best)  # a nan is
        if x.is_float:
            better = better & code.compare("ord", "", best, best)
        if mask is not None:
            better = better & mask
        self.sums[j].value = code.select(better, x, best)
        self.places[j].value = code.select(better, at, self.places[j].value)

    def write_row(self, base: IrValue, place: IrValue, row: tuple[IrValue, IrValue, IrValue]) -> None:
        code, lanes = self.code, self.lanes
        _, count, stride = row
        self.begin()
        numbers = code.lane_numbers("i32", lanes)
        whole, vectors = count - count % (WIDE * lanes), count - count % lanes

        def at(i: IrValue) -> tuple[IrValue, IrValue]:
            number = code.splat(code.convert(i, "i32"), lanes) + numbers
            return base + (i if lanes > 1 else i * stride), number

        with code.loop(0, whole, WIDE * lanes) as i:
            for j in range(WIDE):
                index, number = at(i + j * lanes)
                self.take(j, self.load(index), number)
        with code.loop(whole, vectors, lanes) as i:
            index, number = at(i)
            self.take(0, self.load(index), number)
        if lanes > 1:
            with code.if_(vectors < count):
                index, number = at(vectors)
                mask = code.first_lanes(count - vectors, lanes)
                self.take(0, self.load(index, mask), number, mask)
        self._store_places(self._first_place(), place, None)

    def _first_place(self) -> IrValue:
        """The smallest place of what is equal to the best element of all lanes."""
        code = self.code
        bests = [best.value for best in self.sums]
        best = bests[0]
        for other in bests[1:]:
            best = self.kind.merge(code, best, other)
        best = code.splat(folded(code, best, self.kind.merge), self.lanes)
        first = code.constant(self.place_type, LARGEST_PLACE)
        for other, place in zip(bests, self.places, strict=True):
            same = other.equals(best)
            if other.is_float:
                same = same | (code.compare("uno", "", other, other) & code.compare("uno", "", best, best))
            first = code.intrinsic("smin", first, code.select(same, place.value, LARGEST_PLACE))
        return folded(code, first, lambda code, a, b: code.intrinsic("smin", a, b))

    def add_columns(
        self,
        base: IrValue,
        result: IrValue,
        wide: int,
        rows: tuple[IrValue, IrValue, IrValue],
        mask: IrValue | None,
    ) -> None:
        code, lanes = self.code, self.lanes
        first, last, stride = rows
        self.begin()
        with code.loop(first, last) as row:
            number = code.splat(code.convert(row, "i32"), lanes)
            for j in range(wide):
                self.take(j, self.load(base + row * stride + j * lanes, mask), number)
        for j in range(wide):
            self._store_places(self.places[j].value, result + j * lanes, mask)

    def _store_places(self, places: IrValue, index: IrValue, mask: IrValue | None) -> None:
        self.code.store(self.code.convert(places, "i64"), self.out, index, mask)
