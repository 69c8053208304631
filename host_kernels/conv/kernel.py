"""The kernels of convolutions and of gradients of their inputs."""

from __future__ import annotations

from dl4all.host_kernels.conv.columns import SHIFTED, columns_function
from dl4all.host_kernels.conv.direct import direct_chunks
from dl4all.host_kernels.conv.epilogue import epilogue
from dl4all.host_kernels.conv.parts import MOST_ROWS, MOST_TAPS, PartPlan
from dl4all.host_kernels.conv.slots import ConvolutionSlots, Form
from dl4all.host_kernels.lib.counts import quotient_up, smaller
from dl4all.host_kernels.lib.dot_tiles import Axis, DotTile, Sums, Tiles
from dl4all.host_kernels.lib.library import shared
from dl4all.host_kernels.lib.rows import row_passes
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector


def convolution(*form: object) -> IrModule:
    """The kernel of a :class:`Form`."""
    return Writer(Form(*form)).module  # type: ignore[arg-type]


class Writer:
    """Writes the module of a kernel."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self.slots = ConvolutionSlots(form)
        self.module = IrModule()
        self.element = form.tile.element
        self.pitch = _pitch(form.tile)
        if form.direct:
            chunks = direct_chunks(self.module, form, self.slots)
        else:
            self._columns = shared(columns_function, form.reading, self.element)
            self._tiles = Tiles(form.tile, form.rest)
            chunks = self._chunks()
        copies = self._spread_copies() if form.spread else self._copies() if form.gathered else None
        with self.module.kernel("convolution") as code:
            if form.spread:
                with code.loop(0, self.slots.read(code, "parts")) as part:
                    self._run_part(code, chunks, part)
            else:
                self._run(code, chunks, code.parameters[0])
            if copies is not None:
                lines = self.slots.read(code, "rows") * self.slots.read(code, "images")
                code.parallel(copies, code.parameters[0], lines, self.slots.read(code, "grain"))

    def _run_part(self, code: Code, chunks: Code, part: IrValue) -> None:
        """Have a part computed, with slots of its own."""
        slots = self.slots
        own = code.local("i64", slots.head + slots.block)
        source = code.parameters[0]
        for start, count in ((0, slots.head), (slots.head, slots.block)):
            shifted = code.at(source, part * slots.block, "i64") if start else source
            with code.loop(start, start + count) as i:
                code.store(code.load(shifted, i, "i64"), own, i)
        self._run(code, chunks, own)

    def _run(self, code: Code, chunks: Code, slots: IrValue) -> None:
        at = {name: code.load(slots, self.slots.numbers[name], "i64") for name in PartPlan._fields}
        if self.form.direct:
            planes = at["groups"] * at["filters"] * self.slots.read(code, "images")
            code.parallel(chunks, slots, planes, at["grain"])
            return
        filter_chunks = quotient_up(at["filters"], at["chunk_filters"])
        place_chunks = quotient_up(at["places"], at["chunk_places"])
        count = filter_chunks * place_chunks * at["runs"] * at["groups"]
        code.parallel(chunks, slots, count, at["grain"])

    def _chunks(self) -> Code:
        """The part that computes chunks: some filters of a group at some places of a run."""
        slots, tile, element = self.slots, self.form.tile, self.element
        with self.module.part("chunks") as code:
            _, begin, end = code.parameters
            at = {name: slots.read(code, name) for name in PartPlan._fields}
            x, w, out = (slots.read(code, n) for n in ("x", "w", "scratch" if self.form.gathered else "out"))
            image, channel = slots.read(code, "columns0"), slots.read(code, "columns1")
            memory = code.local(element, max(MOST_ROWS, MOST_TAPS) * self.pitch)
            column = code.local(element, max(MOST_ROWS, MOST_TAPS))
            filter_chunks = quotient_up(at["filters"], at["chunk_filters"])
            place_chunks = quotient_up(at["places"], at["chunk_places"])
            with code.loop(begin, end) as chunk:
                first = chunk % filter_chunks * at["chunk_filters"]
                p0 = chunk // filter_chunks % place_chunks * at["chunk_places"]
                run_group = chunk // filter_chunks // place_chunks
                run, group = run_group % at["runs"], run_group // at["runs"]
                count = smaller(code, at["filters"] - first, at["chunk_filters"])
                p_end = smaller(code, at["places"], p0 + at["chunk_places"])
                row = group * at["filters"] + first
                source = code.at(x, run * at["run_images"] * image + group * at["group_stride"], element)
                start = at["filter_first"] + group * at["filter_group"] + first * at["filter_row"]
                filters = code.at(w, start, element)
                sums = code.at(out, at["out_first"] + run * at["out_run"] + row * at["out_row"], element)
                with code.loop(0, at["channels"], at["block_channels"]) as c0:
                    channels = smaller(code, at["channels"] - c0, at["block_channels"])
                    adds = code.convert(c0 > 0, "i64")
                    block = code.at(source, c0 * channel, element)
                    a = code.at(filters, c0 * at["filter_channel"], element)
                    fetched = code.at(block, at["ahead"], element)
                    with code.loop(p0, p_end, tile.columns) as place:
                        places = smaller(code, p_end - place, tile.columns)
                        numbers = code.at(code.parameters[0], slots.head, "i64")
                        self._columns.run(code, numbers, block, memory, place, places, channels, self.pitch)
                        following = code.at(fetched, place, element)

                        def fetch(
                            row: IrValue,
                            following: IrValue = following,
                            channels: IrValue = channels,
                            count: IrValue = count,
                        ) -> None:
                            """Fetch what the next tile reads, a part of it before the tiles of a row."""
                            first, last = (channels * (row + more) // count for more in (0, tile.rows))
                            with code.loop(first, last) as c:
                                for part in range(0, tile.columns, tile.lanes):
                                    code.prefetch(following, c * channel + part, element)

                        self._tiles.run(
                            code, a, at["filter_row"], memory, self._axes(code, at, channels), count, places,
                            Sums(code.at(sums, place, element), at["out_row"], adds),
                            fetch if self.form.reading == SHIFTED else None, column,
                        )  # fmt: skip
                        if any(self.form.epilogue) and not self.form.gathered:
                            with code.if_((c0 + channels).equals(at["channels"])), code.loop(0, count) as f:
                                target = code.at(sums, f * at["out_row"] + place, element)
                                self._finish(code, target, target, row + f, places)
            return code

    def _axes(self, code: Code, at: dict[str, IrValue], channels: IrValue) -> list[Axis]:
        """Channels and taps, as tiles take them."""
        merged = at["merged"].differs(0)
        taps = at["outer"] * at["inner"]
        return [
            Axis(code.select(merged, 1, channels), at["filter_channel"], taps * self.pitch),
            Axis(at["outer"], at["filter_outer"], at["inner"] * self.pitch),
            Axis(code.select(merged, channels * taps, at["inner"]), at["filter_inner"], self.pitch),
        ]

    def _finish(self, code: Code, source: IrValue, target: IrValue, row: IrValue, count: IrValue) -> None:
        """Store what the epilogue makes of a row of sums."""
        lanes = self.form.tile.lanes
        finished = epilogue(code, self.slots, self.form.epilogue, self.element, row, target, lanes)
        type = vector(self.element, lanes)

        def step(i: IrValue, mask: IrValue | None) -> None:
            code.store(finished(code.load(source, i, type, mask), i, mask), target, i, mask)

        row_passes(code, count, lanes, step)

    def _copies(self) -> Code:
        """The part that copies results of all images for a filter to each image's."""
        slots, tile = self.slots, self.form.tile
        with self.module.part("copies") as code:
            _, begin, end = code.parameters
            places, out_row, rows = (slots.read(code, name) for name in ("image_places", "out_row", "rows"))
            with code.loop(begin, end) as line:
                image, row = line // rows, line % rows
                source = code.at(slots.read(code, "scratch"), row * out_row + image * places, tile.element)
                target = code.at(slots.read(code, "out"), line * places, tile.element)

                self._finish(code, source, target, row, places)
            return code

    def _spread_copies(self) -> Code:
        """The part that copies results of all parts for a filter to each image's."""
        slots, element = self.slots, self.element
        with self.module.part("copies") as code:
            _, begin, end = code.parameters
            rows = slots.read(code, "rows")
            size, step = ([slots.read(code, f"{name}{i}") for i in range(3)] for name in ("size", "step"))
            scratch, out = slots.read(code, "scratch"), slots.read(code, "out")
            with (
                code.loop(begin, end) as line,
                code.loop(0, size[0]) as i,
                code.loop(0, size[1]) as j,
            ):
                image, row = line // rows, line % rows
                first = (i % step[0] * step[1] + j % step[1]) * step[2]
                target = code.at(out, ((line * size[0] + i) * size[1] + j) * size[2], element)

                def source(
                    part: IrValue, row: IrValue = row, image: IrValue = image, i: IrValue = i, j: IrValue = j
                ) -> tuple[IrValue, IrValue]:
                    """Address of a part's results in this row, and how many there are; 0 for only zeros."""

                    def number(name: str) -> IrValue:
                        return slots.of_part(code, part, name)

                    high, wide = (number(f"columns{8 + axis}") for axis in (1, 2))
                    place = image * number("image_places") + (i // step[0] * high + j // step[1]) * wide
                    return (
                        code.at(scratch, number("out_first") + row * number("out_row") + place, element),
                        code.select(number("groups").differs(0), wide, 0),
                    )

                if self.form.spread == 2:
                    self._interleaved(code, [source(first + k) for k in range(2)], target, size[2])
                else:
                    with code.loop(0, step[2]) as k:
                        place, count = source(first + k)
                        with code.loop(0, (size[2] - k + step[2] - 1) // step[2]) as o:
                            value = code.variable(element, 0.0)
                            with code.if_(o < count):
                                value.value = code.load(place, o, element)
                            code.store(value.value, target, o * step[2] + k)
            return code

    def _interleaved(
        self, code: Code, sources: list[tuple[IrValue, IrValue]], target: IrValue, width: IrValue
    ) -> None:
        """Store two rows, one between the other."""
        lanes = self.form.tile.lanes
        type = vector(self.element, lanes)
        order = [n // 2 + n % 2 * lanes for n in range(2 * lanes)]
        with code.loop(0, (width + 1) // 2, lanes) as o:
            left, right = (
                code.load(place, o, type, code.first_lanes(count - o, lanes)) for place, count in sources
            )
            for part in range(2):
                value = code.shuffle(left, right, order[part * lanes :][:lanes])
                at = o * 2 + part * lanes
                code.store(value, target, at, code.first_lanes(width - at, lanes))


def _pitch(tile: DotTile) -> int:
    """Distance of rows of columns: a vector more, and an odd number of them, to use all sets of a cache."""
    return (tile.vectors + 1 | 1) * tile.lanes
