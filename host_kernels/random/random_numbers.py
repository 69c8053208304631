"""Random numbers of the Philox generator, and dropout: the same bits as on every device."""

from __future__ import annotations

from collections.abc import Callable

from dl4all.host_kernels.lib.lines import LineSlots
from dl4all.host_kernels.lib.rows import CHUNK
from dl4all.host_kernels.normalization.batch_norm import check_contiguous
from dl4all.ops.core.expressions import philox
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.random.dropout_functions import threshold_and_scale
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

WORDS = 4
"""Of a counter."""

WORK = 4
"""Operations that a number takes, about, as others count."""

INTEGERS = ("count", "grain", "seed", "offset")
STATE = (INTEGERS.index("seed"), INTEGERS.index("offset"))

Numbers = Callable[[IrValue, IrValue, IrValue | None], None]
"""``numbers(i, words, mask)`` for a vector of random words, of element number i on."""


def _integers(count: int, seed: int = 0, offset: int = 0) -> tuple[int, ...]:
    return count, max(1, CHUNK // (WORDS * provider.processor().lanes(8))), seed, offset


@host_kernel("random_dropout", varying=("seed", "offset"), copies=True)
def prepare_dropout(
    out: ArrayLayout, x: ArrayLayout, p: float, seed: int, offset: int, inner: int
) -> HostLaunch:
    """
    Raises:
        NoKernel: the operand is not of contiguous float32, or neighbours are dropped together.
    """
    check_contiguous(x)
    if inner != 1:
        raise NoKernel("groups of elements")
    threshold, scale = threshold_and_scale(p)
    constants = (*_integers(x.numel(), seed, offset), threshold, float(scale))
    return HostLaunch(dropout, (), 2, constants, work=WORK * x.numel(), numbers=STATE)


@host_kernel("uniform_")
def prepare_uniform(
    low: float, width: float, largest: float, reads: list[ArrayLayout], writes: list[ArrayLayout]
) -> HostLaunch:
    """
    Raises:
        NoKernel: the tensor is not of contiguous float32.
    """
    [out] = writes
    check_contiguous(out)
    constants = (*_integers(out.numel()), low, width, largest)
    return HostLaunch(uniform, (), 1, constants, work=WORK * out.numel(), numbers=STATE)


def dropout() -> IrModule:
    """Elements that their random words keep, scaled. Integers go on with the least word that keeps one."""
    module = IrModule()
    with module.part("counters") as part:
        slots = LineSlots(part, ("x", "out"), (*INTEGERS, "threshold"), ("scale",))

        def numbers(i: IrValue, words: IrValue, mask: IrValue | None) -> None:
            type = vector("float", WORDS * provider.processor().lanes(8))
            threshold = part.as_value(words.type, part.convert(slots["threshold"], "i32"))
            dropped = part.unsigned_less(words, threshold)
            scaled = part.load(slots["x"], i, type, mask) * part.convert(slots["scale"], "float")
            part.store(part.select(dropped, 0.0, scaled), slots["out"], i, mask)

        each_word(part, slots, numbers)
    with module.kernel("dropout") as code:
        _for_all(code, part, LineSlots(code, ("x", "out"), INTEGERS))
    return module


def uniform() -> IrModule:
    """Numbers from `low` on, below `low + width`. Floats: low, width, the largest number."""
    module = IrModule()
    with module.part("counters") as part:
        slots = LineSlots(part, ("out",), INTEGERS, ("low", "width", "largest"))

        def numbers(i: IrValue, words: IrValue, mask: IrValue | None) -> None:
            low, width, largest = (part.convert(slots[name], "float") for name in ("low", "width", "largest"))
            upper = part.binary("lshr", words, 8)
            units = part.convert(upper, "float") * 2.0**-24
            value = units * width + low
            part.store(part.select(value > largest, largest, value), slots["out"], i, mask)

        each_word(part, slots, numbers)
    with module.kernel("uniform") as code:
        _for_all(code, part, LineSlots(code, ("out",), INTEGERS))
    return module


def _for_all(code: Code, part: Code, slots: LineSlots) -> None:
    """Call a part for all counters, as many as a vector has lanes at a time."""
    step = WORDS * provider.processor().lanes(8)
    code.parallel(part, code.parameters[0], (slots["count"] + (step - 1)) // step, slots["grain"])


def each_word(code: Code, slots: LineSlots, numbers: Numbers) -> None:
    """Call ``numbers`` for all elements."""
    lanes = provider.processor().lanes(8)
    step = WORDS * lanes
    _, begin, end = code.parameters
    with code.loop(begin, end) as block:
        counters = code.lane_numbers("i64", lanes) + (slots["offset"] + block * lanes)
        words = philox_words(code, counters, slots["seed"])
        first = block * step
        left = slots["count"] - first
        with code.if_(left >= step):
            numbers(first, words, None)
        with code.if_(left < step):
            numbers(first, words, code.first_lanes(left, step))


def philox_words(code: Code, counters: IrValue, seed: IrValue) -> IrValue:
    """Four words (``i32``) for each counter (``i64``), one counter's after the other's."""
    half = philox.MASK

    def low(value: IrValue) -> IrValue:
        return value & half

    def high(value: IrValue) -> IrValue:
        return code.binary("lshr", value, 32)

    c0, c1 = low(counters), high(counters)
    c2 = c3 = code.constant(counters.type, 0)
    k0, k1 = low(seed), high(seed)
    for _ in range(philox.ROUNDS):
        first, second = c0 * philox.MULTIPLIERS[0], c2 * philox.MULTIPLIERS[1]
        c0, c2 = high(second) ^ c1 ^ k0, high(first) ^ c3 ^ k1
        c1, c3 = low(second), low(first)
        k0, k1 = low(k0 + philox.KEY_STEPS[0]), low(k1 + philox.KEY_STEPS[1])
    lanes = provider.processor().lanes(8)
    first, second = c0 | (c1 << 32), c2 | (c3 << 32)
    order = [place for lane in range(lanes) for place in (lane, lanes + lane)]
    joined = code.shuffle(first, second, order)
    type = vector("i32", WORDS * lanes)
    return code.emit(type, f"bitcast {joined!r} to {type}")
