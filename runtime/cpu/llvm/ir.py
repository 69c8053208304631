"""A writer of LLVM IR: values with operators, loops, and the functions that a kernel consists of.

A kernel is a module with one exported function ``void NAME(ptr slots)``. A slot has 8 bytes: an address, an
integer or a float64. The function runs on the thread that calls it; with :meth:`Code.parallel` it has the
thread pool call a function ``void PART(ptr slots, i64 begin, i64 end)`` of the module for ranges of a count.

Types are LLVM's own: ``"float"``, ``"i64"``, ``"ptr"``, ``"<16 x float>"``. Operators work on floats and on
signed integers, scalars and vectors; a Python number among their operands becomes a constant of the type of
the other one, and comparisons give ``i1`` or a vector of them.

Sources: LLVM Language Reference Manual, https://llvm.org/docs/LangRef.html
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from dl4all.runtime.cpu.llvm.ir_types import FLOATS, SIZES, STORAGES, constant, element_of, lanes_of, vector

PARALLEL = "dl4all_parallel"
"""The pool's function, ``void (ptr part, ptr slots, i64 count, i64 grain)``."""

Operand: TypeAlias = "IrValue | int | float | bool"


class IrValue:
    """A value of a function that is being written.

    An address may have a ``storage``, a key of STORAGES: what lies there are floats in 16 bits, which are
    converted where they are read as floats, and where floats are written.
    """

    __slots__ = ("code", "storage", "text", "type")

    def __init__(self, code: Code, type: str, text: str, storage: str = "") -> None:
        self.code = code
        self.type = type
        self.text = text
        self.storage = storage

    def __repr__(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def is_float(self) -> bool:
        return element_of(self.type) in FLOATS

    def __add__(self, other: Operand) -> IrValue:
        return self.code.binary("fadd" if self.is_float else "add", self, other)

    def __radd__(self, other: Operand) -> IrValue:
        return self.code.binary("fadd" if self.is_float else "add", other, self)

    def __sub__(self, other: Operand) -> IrValue:
        return self.code.binary("fsub" if self.is_float else "sub", self, other)

    def __rsub__(self, other: Operand) -> IrValue:
        return self.code.binary("fsub" if self.is_float else "sub", other, self)

    def __mul__(self, other: Operand) -> IrValue:
        return self.code.binary("fmul" if self.is_float else "mul", self, other)

    def __rmul__(self, other: Operand) -> IrValue:
        return self.code.binary("fmul" if self.is_float else "mul", other, self)

    def __truediv__(self, other: Operand) -> IrValue:
        return self.code.binary("fdiv", self, other)

    def __rtruediv__(self, other: Operand) -> IrValue:
        return self.code.binary("fdiv", other, self)

    def __floordiv__(self, other: Operand) -> IrValue:
        """Of integers, rounded toward zero."""
        return self.code.binary("sdiv", self, other)

    def __mod__(self, other: Operand) -> IrValue:
        """Of integers, with the sign of the dividend."""
        return self.code.binary("srem", self, other)

    def __and__(self, other: Operand) -> IrValue:
        return self.code.binary("and", self, other)

    def __or__(self, other: Operand) -> IrValue:
        return self.code.binary("or", self, other)

    def __xor__(self, other: Operand) -> IrValue:
        return self.code.binary("xor", self, other)

    def __lshift__(self, other: Operand) -> IrValue:
        return self.code.binary("shl", self, other)

    def __rshift__(self, other: Operand) -> IrValue:
        """With copies of the sign."""
        return self.code.binary("ashr", self, other)

    def __neg__(self) -> IrValue:
        if self.is_float:
            return self.code.emit(self.type, f"fneg {self.type} {self.text}")
        return self.code.binary("sub", 0, self)

    def __invert__(self) -> IrValue:
        return self.code.binary("xor", self, self.code.constant(self.type, -1 if self.type != "i1" else 1))

    def __lt__(self, other: Operand) -> IrValue:
        return self.code.compare("olt", "slt", self, other)

    def __le__(self, other: Operand) -> IrValue:
        return self.code.compare("ole", "sle", self, other)

    def __gt__(self, other: Operand) -> IrValue:
        return self.code.compare("ogt", "sgt", self, other)

    def __ge__(self, other: Operand) -> IrValue:
        return self.code.compare("oge", "sge", self, other)

    def equals(self, other: Operand) -> IrValue:
        """Whether they are equal; of floats, neither is nan."""
        return self.code.compare("oeq", "eq", self, other)

    def differs(self, other: Operand) -> IrValue:
        """Whether they are not equal, or one is nan."""
        return self.code.compare("une", "ne", self, other)


class IrVariable:
    """A place for a value that changes, such as a sum over a loop. LLVM keeps it in a register."""

    __slots__ = ("_code", "_place", "type")

    def __init__(self, code: Code, type: str, place: str) -> None:
        self._code = code
        self._place = place
        self.type = type

    @property
    def value(self) -> IrValue:
        return self._code.emit(self.type, f"load {self.type}, ptr {self._place}")

    @value.setter
    def value(self, value: Operand) -> None:
        self._code.line(f"store {self._code.typed(self.type, value)}, ptr {self._place}")


class Code:
    """The body of a function, written instruction by instruction."""

    def __init__(self, module: IrModule, name: str, types: Sequence[str], exported: bool) -> None:
        self.module = module
        self.name = name
        self.parameters = tuple(IrValue(self, type, f"%p{i}") for i, type in enumerate(types))
        self._linkage = "" if exported else "internal "
        self._allocas: list[str] = []
        self._lines: list[str] = []
        self._names = 0
        self._block = "entry"

    # Instructions

    def line(self, text: str) -> None:
        """Write an instruction that has no result."""
        self._lines.append(f"  {text}")

    def emit(self, type: str, text: str) -> IrValue:
        """Write an instruction; returns its result."""
        self._names += 1
        name = f"%v{self._names}"
        self._lines.append(f"  {name} = {text}")
        return IrValue(self, type, name)

    def constant(self, type: str, value: float) -> IrValue:
        return IrValue(self, type, constant(type, value))

    def as_value(self, type: str, value: Operand) -> IrValue:
        """A number as a constant of a type, a scalar in all lanes of a vector, other values as they are."""
        if not isinstance(value, IrValue):
            return self.constant(type, value)
        if value.type != type and value.type == element_of(type):
            return self.splat(value, lanes_of(type))
        return value

    def typed(self, type: str, value: Operand) -> str:
        """The value as an operand with its type."""
        value = self.as_value(type, value)
        return f"{value.type} {value.text}"

    def _pair(self, left: Operand, right: Operand) -> tuple[IrValue, IrValue]:
        """Two operands of one type."""
        types = [operand.type for operand in (left, right) if isinstance(operand, IrValue)]
        type = max(types, key=lanes_of)
        return self.as_value(type, left), self.as_value(type, right)

    def binary(self, operation: str, left: Operand, right: Operand) -> IrValue:
        """An operation of two operands of one type."""
        a, b = self._pair(left, right)
        return self.emit(a.type, f"{operation} {a.type} {a.text}, {b.text}")

    def compare(self, floats: str, integers: str, left: Operand, right: Operand) -> IrValue:
        a, b = self._pair(left, right)
        test = f"fcmp {floats}" if a.is_float else f"icmp {integers}"
        return self.emit(vector("i1", lanes_of(a.type)), f"{test} {a.type} {a.text}, {b.text}")

    def unsigned_less(self, left: IrValue, right: IrValue) -> IrValue:
        """Whether left < right as unsigned integers: for right >= 0, whether 0 <= left < right."""
        return self.emit(vector("i1", lanes_of(left.type)), f"icmp ult {left!r}, {right.text}")

    def select(self, condition: IrValue, accepted: Operand, rejected: Operand) -> IrValue:
        a, b = self._pair(accepted, rejected)
        return self.emit(
            a.type, f"select {condition.type} {condition.text}, {a.type} {a.text}, {b.type} {b.text}"
        )

    def intrinsic(self, name: str, *operands: IrValue, result: str = "") -> IrValue:
        """Call LLVM's function of this name for its operands' type: ``intrinsic("fmuladd", a, b, c)``."""
        result = result or operands[0].type
        suffix = re.sub(r"<(\d+) x (\w+)>", r"v\1\2", operands[0].type)
        suffix = suffix.replace("float", "f32").replace("double", "f64").replace("half", "f16")
        return self.call(f"llvm.{name}.{suffix}", result, *operands)

    def call(self, function: str, result: str, *operands: IrValue) -> IrValue:
        """Call a function that LLVM or the process has; ``"void"`` is the type of no result."""
        types = ", ".join(operand.type for operand in operands)
        self.module.declare(f"declare {result} @{function}({types})")
        text = f"call {result} @{function}({', '.join(map(repr, operands))})"
        if result == "void":
            self.line(text)
            return IrValue(self, "void", "")
        return self.emit(result, text)

    def run(self, part: Code, *operands: Operand) -> None:
        """Call a function of this module that returns nothing."""
        given = (self.typed(p.type, o) for p, o in zip(part.parameters, operands, strict=True))
        self.line(f"call void @{part.name}({', '.join(given)})")

    def parallel(self, part: Code, slots: IrValue, count: Operand, grain: Operand) -> None:
        """Call ``part(slots, begin, end)`` for ranges of about `grain`, which cover `count`, on all threads.

        Which thread takes which range is open; each range begins at a multiple of the grain, or of some
        larger number that depends on the count alone.
        """
        self.module.declare(f"declare void @{PARALLEL}(ptr, ptr, i64, i64)")
        count_text, grain_text = self.typed("i64", count), self.typed("i64", grain)
        self.line(f"call void @{PARALLEL}(ptr @{part.name}, {slots!r}, {count_text}, {grain_text})")

    # Conversions and lanes

    def convert(self, value: IrValue, element: str) -> IrValue:
        """A number of another type; integers are signed, floats become integers toward zero."""
        source, lanes = element_of(value.type), lanes_of(value.type)
        target = vector(element, lanes)
        if source == element:
            return value
        if source == "i1":
            operation = "uitofp" if element in FLOATS else "zext"
        elif source in FLOATS:
            larger = SIZES[element] > SIZES[source]
            operation = ("fpext" if larger else "fptrunc") if element in FLOATS else "fptosi"
        elif element in FLOATS:
            operation = "sitofp"
        else:
            operation = "sext" if SIZES[element] > SIZES[source] else "trunc"
        return self.emit(target, f"{operation} {value!r} to {target}")

    def unsigned(self, value: IrValue, element: str) -> IrValue:
        """A wider integer of an unsigned one."""
        target = vector(element, lanes_of(value.type))
        return self.emit(target, f"zext {value!r} to {target}")

    def bits(self, value: IrValue, element: str) -> IrValue:
        """The same bits as another type of the same size."""
        target = vector(element, lanes_of(value.type))
        return self.emit(target, f"bitcast {value!r} to {target}")

    def float_of_bfloat16(self, value: IrValue) -> IrValue:
        """The float of the words of bfloat16."""
        return self.bits(self.binary("shl", self.unsigned(value, "i32"), 16), "float")

    def bfloat16_of_float(self, value: IrValue) -> IrValue:
        """The words of the nearest bfloat16, of two as near the even one."""
        bits = self.bits(value, "i32")
        even = self.binary("and", self.binary("lshr", bits, 16), 1)
        rounded = bits + even + 0x7FFF
        rounded = self.select(self.compare("uno", "eq", value, value), 0x7FC00000, rounded)
        return self.convert(self.binary("lshr", rounded, 16), "i16")

    def splat(self, value: IrValue, lanes: int) -> IrValue:
        """A vector with a scalar in all lanes."""
        if lanes == 1:
            return value
        type = vector(value.type, lanes)
        one = self.emit(type, f"insertelement {type} poison, {value!r}, i32 0")
        return self.emit(
            type, f"shufflevector {type} {one.text}, {type} poison, <{lanes} x i32> zeroinitializer"
        )

    def extract(self, value: IrValue, lane: Operand) -> IrValue:
        """One lane of a vector."""
        return self.emit(element_of(value.type), f"extractelement {value!r}, {self.typed('i32', lane)}")

    def insert(self, value: IrValue, scalar: IrValue, lane: Operand) -> IrValue:
        """A vector with another scalar in a lane."""
        return self.emit(value.type, f"insertelement {value!r}, {scalar!r}, {self.typed('i32', lane)}")

    def shuffle(self, left: IrValue, right: IrValue, lanes: Sequence[int]) -> IrValue:
        """The lanes of two vectors of one type, counted on, in another order."""
        type = vector(element_of(left.type), len(lanes))
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.emit(type, f"shufflevector {left!r}, {right!r}, <{len(lanes)} x i32> <{mask}>")

    def lane_numbers(self, element: str, lanes: int) -> IrValue:
        """The vector 0, 1, 2, ... of an integer type."""
        numbers = ", ".join(f"{element} {lane}" for lane in range(lanes))
        return (
            IrValue(self, vector(element, lanes), f"<{numbers}>") if lanes > 1 else self.constant(element, 0)
        )

    def sum_of(self, value: IrValue) -> IrValue:
        """The sum of a vector's lanes by halves: a fixed order."""
        lanes = lanes_of(value.type)
        while lanes > 2:
            lanes //= 2
            low, high = range(lanes), range(lanes, 2 * lanes)
            value = self.shuffle(value, value, low) + self.shuffle(value, value, high)
        return value if lanes == 1 else self.extract(value, 0) + self.extract(value, 1)

    def largest_of(self, value: IrValue) -> IrValue:
        """The largest of a vector's lanes; nan if one is."""
        return self.emit(
            element_of(value.type),
            self._reduction("fmaximum" if value.is_float else "smax", value),
        )

    def any_of(self, condition: IrValue) -> IrValue:
        """Whether a condition holds in one of a vector's lanes."""
        return condition if condition.type == "i1" else self.emit("i1", self._reduction("or", condition))

    def _reduction(self, name: str, value: IrValue) -> str:
        element, lanes = element_of(value.type), lanes_of(value.type)
        suffix = {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
        function = f"llvm.vector.reduce.{name}.v{lanes}{suffix}"
        self.module.declare(f"declare {element} @{function}({value.type})")
        return f"call {element} @{function}({value!r})"

    # Memory

    def slot(self, number: int, type: str = "i64", storage: str = "") -> IrValue:
        """The value of a slot of the function: an address, an integer, or a float64 as ``"double"``."""
        place = self.at(self.parameters[0], number, "i64")
        value = self.emit(type, f"load {type}, {place!r}, align 8, !invariant.load !0")
        value.storage = storage
        return value

    def at(self, pointer: IrValue, index: Operand, element: str) -> IrValue:
        """The address of an element."""
        element = STORAGES.get(pointer.storage, element)
        place = self.emit("ptr", f"getelementptr {element}, {pointer!r}, {self.typed('i64', index)}")
        place.storage = pointer.storage
        return place

    def load(self, pointer: IrValue, index: Operand, type: str, mask: IrValue | None = None) -> IrValue:
        """The value of a type whose first element is element number `index`; 0 in lanes without a mask."""
        element = element_of(type)
        place = self.at(pointer, index, element)
        if pointer.storage:
            place.storage = ""
            words = self.load(place, 0, vector(STORAGES[pointer.storage], lanes_of(type)), mask)
            return (
                self.float_of_bfloat16(words) if pointer.storage == "bf16" else self.convert(words, element)
            )
        if mask is None:
            return self.emit(type, f"load {type}, {place!r}, align {SIZES[element]}")
        return self.call_masked("load", type, place, mask)

    def store(self, value: IrValue, pointer: IrValue, index: Operand, mask: IrValue | None = None) -> None:
        """Write a value from element number `index` on, in lanes with a mask."""
        element = element_of(value.type)
        place = self.at(pointer, index, element)
        if pointer.storage:
            place.storage = ""
            is_half = pointer.storage == "half"
            words = self.convert(value, "half") if is_half else self.bfloat16_of_float(value)
            self.store(words, place, 0, mask)
            return
        if mask is None:
            self.line(f"store {value!r}, {place!r}, align {SIZES[element]}")
        else:
            self.call_masked("store", value.type, place, mask, value)

    def call_masked(
        self, what: str, type: str, place: IrValue, mask: IrValue, value: IrValue | None = None
    ) -> IrValue:
        element, lanes = element_of(type), lanes_of(type)
        suffix = {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
        name = f"llvm.masked.{what}.v{lanes}{suffix}.p0"
        align = f"ptr align {SIZES[element]} {place.text}"
        if value is None:
            self.module.declare(f"declare {type} @{name}(ptr, {mask.type}, {type})")
            return self.emit(type, f"call {type} @{name}({align}, {mask!r}, {type} zeroinitializer)")
        self.module.declare(f"declare void @{name}({type}, ptr, {mask.type})")
        self.line(f"call void @{name}({value!r}, {align}, {mask!r})")
        return value

    def prefetch(self, pointer: IrValue, index: Operand, element: str, *, writes: bool = False) -> None:
        """Have an element's cache line fetched, to be read or written soon; it need not exist."""
        place = self.at(pointer, index, element)
        self.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        locality = 3 if writes else 2
        self.line(f"call void @llvm.prefetch.p0({place!r}, i32 {int(writes)}, i32 {locality}, i32 1)")

    def gather(self, pointer: IrValue, indices: IrValue, type: str, mask: IrValue) -> IrValue:
        """A vector of the elements with these numbers (``i64``); 0 in lanes without a mask."""
        element, lanes = element_of(type), lanes_of(type)
        places = self.emit(vector("ptr", lanes), f"getelementptr {element}, {pointer!r}, {indices!r}")
        suffix = {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
        name = f"llvm.masked.gather.v{lanes}{suffix}.v{lanes}p0"
        self.module.declare(f"declare {type} @{name}({places.type}, {mask.type}, {type})")
        align = f"<{lanes} x ptr> align {SIZES[element]} {places.text}"
        return self.emit(type, f"call {type} @{name}({align}, {mask!r}, {type} zeroinitializer)")

    def scatter(self, value: IrValue, pointer: IrValue, indices: IrValue, mask: IrValue) -> None:
        """Write a vector to the elements of these numbers (``i64``), in lanes with a mask, in order."""
        element, lanes = element_of(value.type), lanes_of(value.type)
        places = self.emit(vector("ptr", lanes), f"getelementptr {element}, {pointer!r}, {indices!r}")
        suffix = {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
        name = f"llvm.masked.scatter.v{lanes}{suffix}.v{lanes}p0"
        self.module.declare(f"declare void @{name}({value.type}, {places.type}, {mask.type})")
        align = f"<{lanes} x ptr> align {SIZES[element]} {places.text}"
        self.line(f"call void @{name}({value!r}, {align}, {mask!r})")

    def first_lanes(self, count: IrValue, lanes: int) -> IrValue:
        """The mask of the first `count` lanes."""
        numbers = self.lane_numbers("i64", lanes)
        return numbers < self.splat(count, lanes)

    def local(self, type: str, count: int = 1) -> IrValue:
        """The address of memory of the function's own, undefined at first."""
        self._names += 1
        name = f"%m{self._names}"
        self._allocas.append(f"  {name} = alloca {type}, i64 {count}, align 64")
        return IrValue(self, "ptr", name)

    def variable(self, type: str, value: Operand) -> IrVariable:
        """A variable with a first value."""
        self._names += 1
        name = f"%m{self._names}"
        self._allocas.append(f"  {name} = alloca {type}")
        made = IrVariable(self, type, name)
        made.value = value
        return made

    # Control flow

    def label(self, what: str) -> str:
        self._names += 1
        return f"{what}{self._names}"

    def begin(self, block: str) -> None:
        self._lines.append(f"{block}:")
        self._block = block

    def branch(self, block: str) -> None:
        self.line(f"br label %{block}")

    @contextlib.contextmanager
    def loop(self, start: Operand, stop: Operand, step: Operand = 1) -> Iterator[IrValue]:
        """Count from `start` up to `stop`, not included; the number is an ``i64``."""
        head, body, latch, end = (self.label(name) for name in ("head", "body", "latch", "end"))
        first, last, by = (self.as_value("i64", value) for value in (start, stop, step))
        before = self._block
        self.branch(head)
        self.begin(head)
        self._names += 1
        following = f"%n{self._names}"
        number = self.emit("i64", f"phi i64 [{first.text}, %{before}], [{following}, %{latch}]")
        self.line(f"br i1 {(number < last).text}, label %{body}, label %{end}")
        self.begin(body)
        yield number
        self.branch(latch)
        self.begin(latch)
        self.line(f"{following} = add nsw i64 {number.text}, {by.text}")
        self.branch(head)
        self.begin(end)

    @contextlib.contextmanager
    def if_(self, condition: IrValue) -> Iterator[None]:
        """A block that runs where a condition holds."""
        then, end = self.label("then"), self.label("end")
        self.line(f"br i1 {condition.text}, label %{then}, label %{end}")
        self.begin(then)
        yield
        self.branch(end)
        self.begin(end)

    @property
    def text(self) -> str:
        parameters = ", ".join(map(repr, self.parameters))
        lines = (*self._allocas, *self._lines)
        return (
            f"define {self._linkage}void @{self.name}({parameters}) #0 {{\nentry:\n"
            + "\n".join(lines)
            + "\n  ret void\n}\n"
        )


class IrModule:
    """The functions of a kernel.

    >>> module = IrModule()
    >>> with module.kernel("twice") as code:
    ...     x, count = code.slot(0, "ptr"), code.slot(1)
    ...     with code.loop(0, count) as i:
    ...         code.store(code.load(x, i, "float") * 2.0, x, i)
    >>> "fmul float" in module.text
    True
    """

    def __init__(self) -> None:
        self._declarations: dict[str, None] = {}
        self._functions: list[Code] = []

    def declare(self, text: str) -> None:
        self._declarations[text] = None

    def _function(self, name: str, types: Sequence[str], exported: bool = False) -> Code:
        code = Code(self, name, types, exported)
        self._functions.append(code)
        return code

    @contextlib.contextmanager
    def kernel(self, name: str) -> Iterator[Code]:
        """The exported function, which is given the slots."""
        yield self._function(name, ("ptr",), exported=True)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[Code]:
        """A function for :meth:`Code.parallel`: its parameters are the slots, the first and the end."""
        yield self._function(name, ("ptr", "i64", "i64"))

    @contextlib.contextmanager
    def function(self, name: str, *types: str, exported: bool = False) -> Iterator[Code]:
        """A function of the module, called by :meth:`Code.run`, and by other modules if it is exported."""
        yield self._function(name, types, exported)

    @contextlib.contextmanager
    def shared(self, name: str, *types: str) -> Iterator[Code]:
        """An exported function that other modules call, by the name that ``provider.linked`` gives."""
        yield self._function(name, types, exported=True)

    @property
    def text(self) -> str:
        """The module as LLVM IR."""
        functions = "\n".join(function.text for function in self._functions)
        return "\n".join((*self._declarations, functions, "attributes #0 = { nounwind }", "!0 = !{}", ""))
