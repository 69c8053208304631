"""Generated kernels for elementwise nodes that run as one.

The GLSL is readable, includes the functions of ``shaders/include`` and is named after the ops. Sizes, strides
and offsets are specialization constants or push constants, never text, so kernels of one kind share their
SPIR-V, whatever the shapes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from dl4all.graph.codegen.elementwise_kernel import (
    HALVES,
    FusedKernel,
    KernelStep,
    combine,
    compute_dtype,
    is_bool,
)
from dl4all.graph.codegen.epilogue import holds, storage_type
from dl4all.graph.ir.graph import Binding, BoundLaunch, Graph, Node, Value
from dl4all.ops.core.expressions.expression import functions_of, print_glsl
from dl4all.ops.core.kernels.launch import ceil_div, pack, strided_grid
from dl4all.ops.core.tensor_base import contiguous_strides
from dl4all.ops.elementwise.kernels import MATH_FUNCTIONS, WORKGROUP_SIZE, grid_over_rows
from dl4all.runtime import spirv
from dl4all.runtime.requirements import MAX_BINDINGS
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch

SPECIAL = ("is_nan", "is_inf", "is_finite", "larger", "smaller")  # functions of math/special.glsl
MAX_NAME = 60  # characters
BYTES = ("uint8", "bool")

BYTE_FUNCTIONS = """
int byte_at(uint word, uint index) {
    return int((word >> (index % 4 * 8)) & 255u);
}

ivec4 unpack_bytes(uint word) {
    return ivec4(word & 255u, (word >> 8) & 255u, (word >> 16) & 255u, word >> 24);
}

uint pack_bytes(ivec4 bytes) {
    const uvec4 low = uvec4(bytes) & 255u;
    return low.x | low.y << 8 | low.z << 16 | low.w << 24;
}
"""


def launch(
    nodes: Sequence[Node], stored: Collection[Value], graph: Graph, device: Device
) -> BoundLaunch | None:
    """One launch in place of those of elementwise nodes.

    Args:
        nodes: in an order in which they can run.
        stored: the results among theirs that memory must hold afterwards.
        graph: that they belong to.
        device: that it is for.

    Returns:
        None where they cannot run as one kernel, or not within the device's limits, and where no compiler is
        installed that could build it.
    """
    kernel = combine(nodes, stored)
    if kernel is None or not fits(kernel, device):
        return None
    bound = bind(kernel, graph, device)
    return bound if spirv.is_built(bound.launch.shader) else None


def fits(kernel: FusedKernel, device: Device) -> bool:
    """Whether a kernel stays within a device's limits."""
    limits = device.info.limits
    bindings = len(kernel.operands)
    push_bytes = 4 * (1 + len(kernel.numbers))
    fit = bindings <= min(MAX_BINDINGS, limits.storage_buffers) and push_bytes <= limits.push_constants
    return fit and holds(device, kernel.operands)


def bind(kernel: FusedKernel, graph: Graph, device: Device) -> BoundLaunch:
    """The launch of a kernel, with its buffers."""
    text = _Text(kernel)
    sizes, _, width = kernel.layout
    rows = math.prod(sizes[:-1])
    length = sizes[-1] // width
    if len(sizes) == 1:
        groups = strided_grid(ceil_div(kernel.elements, width), WORKGROUP_SIZE, device)
    else:
        groups = grid_over_rows(length, rows, device, short_rows_share=True)
    numbers = (
        float(number.value) if number.kind == "float" else int(number.value) for number in kernel.numbers
    )
    push = pack(length if len(sizes) == 1 else rows, *numbers)
    shader = spirv.Shader(f"generated/{name_of(kernel.ops)}.comp", source=text.source())
    shader = shader.storing_at(
        {
            place: storage_type(graph, operand.dtype, read=place < len(kernel.loads))
            for place, operand in enumerate(kernel.operands)
        }
    )
    whole = (graph.buffers[operand.value.buffer] for operand in kernel.operands)
    return BoundLaunch(
        Launch(shader, groups, push, tuple(text.constants.values())),
        tuple(Binding(buffer.number, 0, buffer.nbytes) for buffer in whole),
        (False,) * len(kernel.loads) + (True,) * len(kernel.stores),
    )


def name_of(ops: Sequence[str]) -> str:
    """A name for a kernel of several ops, of limited length.

    >>> name_of(["mul", "add", "relu"])
    'fused_mul_add_relu'
    >>> name_of(["maximum_backward"] * 5)
    'fused_maximum_backward_maximum_backward_and_3_more'
    """
    name = f"fused_{'_'.join(ops)}"
    if len(name) <= MAX_NAME:
        return name
    kept = next(k for k in range(len(ops) - 1, -1, -1) if len("_".join(ops[:k])) <= MAX_NAME - 20)
    return f"fused_{'_'.join(ops[:kept])}_and_{len(ops) - kept}_more"


class _Text:
    """The GLSL of a kernel, and its specialization constants by name, in order."""

    def __init__(self, kernel: FusedKernel) -> None:
        self.kernel = kernel
        self.sizes, self.strides, self.width = kernel.layout
        self.constants: dict[str, int] = {}
        self.is_flat = len(self.sizes) == 1

    def source(self) -> str:
        body = self._flat_loop() if self.is_flat else self._row_loop()
        functions = self._functions()
        constants = [
            f"layout(constant_id = {id}) const uint {name} = 1;\n" for id, name in enumerate(self.constants)
        ]
        parts = [
            "#version 450\n#extension GL_GOOGLE_include_directive : require\n",
            f"// {', '.join(self.kernel.ops)}: {self.width} elements at a time"
            f"{'' if self.is_flat else ', row by row'}.\n",
            *(f'#include "{file}"\n' for file in self._includes()),
            f"layout(local_size_x = {WORKGROUP_SIZE}) in;\n",
            *constants,
            "\n",
            *self._declarations(),
            functions,
            "\n",
            *body,
        ]
        return "".join(parts)

    def _includes(self) -> list[str]:
        called = frozenset[str]().union(*(functions_of(step.tree) for step in self.kernel.steps))
        files = [f"math/{file.lower()}.glsl" for file, names in MATH_FUNCTIONS.items() if called & {*names}]
        files += ["math/special.glsl"] if called & {*SPECIAL} else []
        rounds = any(step.rounds and step.dtype in HALVES for step in self.kernel.steps)
        return files + (["halves.glsl"] if rounds else [])

    def _constant(self, name: str, value: int) -> str:
        self.constants[name] = value
        return name

    def _declarations(self) -> list[str]:
        """The bindings and the push constants."""
        lines = []
        for place, load in enumerate(self.kernel.loads):
            type = self._memory_type(load.operand.dtype, self._is_vector(place))
            lines.append(
                f"layout(binding = {place}) readonly buffer X{place} {{ {type} x{place}_data[]; }};\n"
            )
        for place, store in enumerate(self.kernel.stores):
            type = self._memory_type(store.operand.dtype, vector=self.width == 4)
            binding = len(self.kernel.loads) + place
            lines.append(
                f"layout(binding = {binding}) writeonly buffer Y{place} {{ {type} y{place}_data[]; }};\n"
            )
        count = "n" if self.is_flat else "rows"
        numbers = "".join(f" {number.kind} k{i};" for i, number in enumerate(self.kernel.numbers))
        lines.append(f"layout(push_constant) uniform Push {{ uint {count};{numbers} }} p;\n")
        return lines

    def _functions(self) -> str:
        """``compute``, which makes the elements to store of those that were loaded."""
        kernel = self.kernel
        bytes = BYTE_FUNCTIONS if any(operand.dtype in BYTES for operand in kernel.operands) else ""
        parameters = [f"{_type(load.operand.dtype)} x{i}" for i, load in enumerate(kernel.loads)]
        parameters += [f"out {_type(store.operand.dtype)} y{i}" for i, store in enumerate(kernel.stores)]
        lines = [f"    {_statement(step)};\n" for step in kernel.steps]
        lines += [f"    y{i} = {store.variable};\n" for i, store in enumerate(kernel.stores)]
        return f"{bytes}\nvoid compute({', '.join(parameters)}) {{\n{''.join(lines)}}}\n"

    @staticmethod
    def _memory_type(dtype: str, vector: bool) -> str:
        if dtype in BYTES:
            return "uint"
        return {"float": "vec4", "int": "ivec4"}[_type(dtype)] if vector else _type(dtype)

    def _is_constant(self, place: int) -> bool:
        """Whether all elements of a row are one."""
        return self.strides[place][-1] == 0

    def _is_vector(self, place: int) -> bool:
        return self.width == 4 and not self._is_constant(place)

    # Loads and stores

    def _load(self, place: int, index: str) -> str:
        """The statement that loads an operand's element, or its four elements."""
        dtype = self.kernel.loads[place].operand.dtype
        data = f"x{place}_data"
        if self._is_vector(place):
            type = self._memory_type(dtype, vector=True)
            if dtype in BYTES:
                return f"const ivec4 x{place} = unpack_bytes({data}[{index}]);\n"
            return f"const {type} x{place} = {data}[{index}];\n"
        if dtype in BYTES:
            return f"const int x{place} = byte_at({data}[({index}) / 4], {index});\n"
        return f"const {_type(dtype)} x{place} = {data}[{index}];\n"

    def _compute_and_store(self, index: str, indent: str) -> list[str]:
        kernel = self.kernel
        lines = []
        for i, store in enumerate(kernel.stores):
            type = _type(store.operand.dtype)
            lines.append(
                f"{indent}{({'float': 'vec4', 'int': 'ivec4'}[type]) if self.width == 4 else type} y{i};\n"
            )
        for component in ("x", "y", "z", "w") if self.width == 4 else ("",):
            dot = f".{component}" if component else ""
            arguments = [f"x{i}{dot if self._is_vector(i) else ''}" for i in range(len(kernel.loads))]
            arguments += [f"y{i}{dot}" for i in range(len(kernel.stores))]
            lines.append(f"{indent}compute({', '.join(arguments)});\n")
        for i, store in enumerate(kernel.stores):
            value = f"pack_bytes(y{i})" if store.operand.dtype in BYTES else f"y{i}"
            offset = store.operand.offset // self.width
            start = f"{self._constant(f'Y{i}_OFFSET', offset)} + " if offset else ""
            lines.append(f"{indent}y{i}_data[{start}{index}] = {value};\n")
        return lines

    def _offset(self, place: int) -> str:
        """An operand's offset with a plus behind it; empty if there is none."""
        offset = self.kernel.loads[place].operand.offset
        if self._is_vector(place):
            offset //= 4
        return f"{self._constant(f'X{place}_OFFSET', offset)} + " if offset else ""

    # Loops

    def _flat_loop(self) -> list[str]:
        lines = ["void main() {\n    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;\n"]
        within = []
        for place in range(len(self.kernel.loads)):
            offset = self._offset(place)
            stride = self.strides[place][-1]
            if self._is_constant(place):
                lines.append(f"    {self._load(place, offset.removesuffix(' + ') or '0')}")
            else:
                step = f" * {self._constant(f'X{place}_STRIDE', stride)}" if stride != 1 else ""
                within.append(f"        {self._load(place, f'{offset}i{step}')}")
        lines.append("    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {\n")
        return [*lines, *within, *self._compute_and_store("i", "        "), "    }\n}\n"]

    def _row_loop(self) -> list[str]:
        length = self._constant("LENGTH", self.sizes[-1] // self.width)
        # Short rows share a workgroup; each gets the next power of 2 of its length.
        per_row = 1 << min((self.sizes[-1] // self.width - 1).bit_length(), WORKGROUP_SIZE.bit_length() - 1)
        lanes = self._constant("LANES", per_row)
        rows = f"{WORKGROUP_SIZE} / {lanes}"
        lines = [
            "void main() {\n",
            f"    const uint lane = gl_LocalInvocationID.x % {lanes};\n",
            f"    const uint first = gl_WorkGroupID.y * ({rows}) + gl_LocalInvocationID.x / {lanes};\n",
            f"    for (uint row = first; row < p.rows; row += gl_NumWorkGroups.y * ({rows})) {{\n",
        ]
        starts, within = [], []
        for place in range(len(self.kernel.loads)):
            start = f"x{place}_row"
            starts.append(f"        const uint {start} = {self._row_start(place)};\n")
            if self._is_constant(place):
                starts.append(f"        {self._load(place, start)}")
            else:
                stride = self.strides[place][-1]
                step = f" * {self._constant(f'X{place}_STRIDE', stride)}" if stride != 1 else ""
                within.append(f"            {self._load(place, f'{start} + column{step}')}")
        lines += [*self._axis_indices(), *starts]
        lines += [
            f"        for (uint column = gl_WorkGroupID.x * {lanes} + lane; column < {length};\n",
            f"             column += gl_NumWorkGroups.x * {lanes}) {{\n",
        ]
        stores = self._compute_and_store(f"row * {length} + column", "            ")
        return [*lines, *within, *stores, "        }\n    }\n}\n"]

    def _is_dense(self, place: int) -> bool:
        return self.strides[place] == contiguous_strides(self.sizes)

    def _axis_indices(self) -> list[str]:
        """The indices of a row along the axes in front of the last one, if an operand needs them."""
        if len(self.sizes) == 2 or all(map(self._is_dense, range(len(self.strides)))):
            return []
        lines, rest = [], "row"
        for axis in range(len(self.sizes) - 2, 0, -1):
            size = self._constant(f"SIZE_{axis}", self.sizes[axis])
            quotient = f"rest{axis}" if axis > 1 else "i0"
            lines.append(f"        const uint i{axis} = {rest} % {size}, {quotient} = {rest} / {size};\n")
            rest = quotient
        return lines

    def _row_start(self, place: int) -> str:
        """The first element of a row of an operand."""
        offset = self._offset(place)
        if self._is_dense(place):
            return f"{offset}row * LENGTH"
        terms = []
        for axis, stride in enumerate(self.strides[place][:-1]):
            if stride:
                index = f"i{axis}" if len(self.sizes) > 2 else "row"
                steps = stride // 4 if self._is_vector(place) else stride
                factor = f" * {self._constant(f'X{place}_STRIDE_{axis}', steps)}" if steps != 1 else ""
                terms.append(f"{index}{factor}")
        return f"{offset}{' + '.join(terms)}" if terms else offset.removesuffix(" + ") or "0"


def _type(dtype: str) -> str:
    """The GLSL type of a variable."""
    return "float" if compute_dtype(dtype) == "float32" else "int"


def _statement(step: KernelStep) -> str:
    """The declaration of a step's variable."""
    text = print_glsl(step.tree)
    if is_bool(step.tree):
        text = f"{_type(step.dtype)}({text})"
    if step.dtype in HALVES and step.rounds:
        text = f"as_{step.dtype}({text})"
    if step.dtype == "uint8":
        text = f"({text}) & 255"
    # A sum that took in the product unrounded would differ from what the ops compute one by one.
    precise = "precise " if step.rounds and step.dtype == "float32" else ""
    return f"{precise}{_type(step.dtype)} {step.name} = {text}"
