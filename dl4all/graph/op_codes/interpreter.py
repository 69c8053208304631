"""The interpreter's shader, and launches of programs."""

from __future__ import annotations

from typing import NamedTuple

from dl4all.graph.op_codes.instruction import PARAMETERS
from dl4all.graph.op_codes.opcode import CODES, ELEMENTWISE, OPCODES, Kind
from dl4all.ops.core.kernels.launch import pack, shader
from dl4all.ops.core.op import OPTIONAL_SHADERS
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device.programs import Launch

PUSH_WORDS = 2
"""Of the push constants, in front of the parameters: the first and last instruction."""


class InterpreterVariant(NamedTuple):
    """An interpreter: how many tensors outside a dispatch can reach, its invocations, and the size of tiles.

    In tiles invocations multiply matrices together; where the size is 0, each computes elements by itself.
    One that reaches no tensors outside is that of accelerators.
    """

    buffers: int
    invocations: int
    tile: int


SIZES = ((8, 0), (128, 16))
VARIANTS = tuple(InterpreterVariant(buffers, *size) for buffers in (2, 6) for size in SIZES)
ACCELERATORS = tuple(InterpreterVariant(0, *size) for size in SIZES)


def _cases(kind: Kind) -> str:
    return " ".join(f"case {CODES[o.name]}u: return {o.glsl};" for o in OPCODES if o.kind == kind)


def _interpreter(variant: InterpreterVariant) -> Shader:
    first_function = min(CODES[opcode.name] for opcode in OPCODES if opcode.kind == "function")
    codes = {f"{o.name.upper()}_CODE": CODES[o.name] for o in OPCODES if o.kind not in ELEMENTWISE}
    return shader(
        "op_codes/interpreter.comp",
        BUFFERS=variant.buffers,
        ACCELERATOR=int(not variant.buffers),
        SIZE=variant.invocations,
        TILE=variant.tile,
        ARITHMETIC=_cases("arithmetic"),
        FUNCTIONS=_cases("function"),
        FUNCTION_CODE=first_function,
        **codes,
    )


INTERPRETERS = {variant: _interpreter(variant) for variant in (*VARIANTS, *ACCELERATORS)}
OPTIONAL_SHADERS.extend(INTERPRETERS.values())


def variant_for(info: DeviceInfo) -> InterpreterVariant:
    """The interpreter of a device.

    It takes eight bindings where the device has them, or four, as any has: two are the program and the arena.
    On a processor a workgroup is one thread, which runs eight invocations at a time anyway, and more than
    those only cost time at each instruction.
    """
    buffers = 6 if info.limits.storage_buffers >= 8 else 2
    return next(v for v in VARIANTS if v.buffers == buffers and v[1:] == _size_for(info))


def accelerator_for(info: DeviceInfo) -> InterpreterVariant:
    """The interpreter of accelerators on a device."""
    return next(v for v in ACCELERATORS if v[1:] == _size_for(info))


def _size_for(info: DeviceInfo) -> tuple[int, int]:
    return SIZES[info.type != "software"]


def launch_of(
    variant: InterpreterVariant, first: int, last: int, parameters: tuple[float, ...] = ()
) -> Launch:
    """The dispatch that runs the instructions `first` to `last` - 1 of a program.

    It binds the program, the arena, and as many buffers as the variant says.
    """
    rest = (0.0,) * (PARAMETERS - len(parameters))
    return Launch(INTERPRETERS[variant], (1, 1, 1), pack(first, last, *parameters, *rest))
