"""Tracing: a call runs as always, and what it asks of its device becomes a graph.

The kernels that a call launches depend on more than shapes: on how memory is laid out, on what the
autotuner has measured, on limits of the device. So the call is not run on stand-ins but in earnest, and
captured (as CUDA graphs are) together with the ops that its commands belong to. Its results are right
whatever comes of the trace.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dl4all.allocator.storage import Storage
from dl4all.errors import ArgumentError
from dl4all.graph.ir.graph import (
    Argument,
    Binding,
    BoundFill,
    BoundLaunch,
    Command,
    Foreign,
    Graph,
    GraphBuffer,
    HostCall,
    Kind,
    Node,
    Operand,
    Value,
    VaryingWord,
    bound_bytes,
)
from dl4all.ops.core import tape
from dl4all.ops.core.kernels.host_work import note_tensor_work
from dl4all.ops.core.op import Op
from dl4all.ops.core.tensor_base import Size, TensorBase
from dl4all.scheduler import listeners
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch
from dl4all.scheduler.index_errors import calling_line
from dl4all.scheduler.listeners.capture import Capture, lock
from dl4all.scheduler.push_constants import Again, Mark, varying

T = TypeVar("T")


CONDITION = "condition"
"""The name of nodes that make sure of a value that the host has read."""


class OtherCondition(Exception):
    """A replay has met another condition than its trace: nothing that it has computed is seen."""


@dataclass(frozen=True)
class _Condition:
    """The work of a node that makes sure of a condition."""

    value: bool

    def __call__(self, tensor: Any) -> None:
        if bool(tensor.item()) is not self.value:
            raise OtherCondition


@dataclass
class _Call:
    """A node in the making."""

    name: str
    op: str = ""
    operands: tuple[Argument, ...] = ()
    arguments: tuple[tuple[str, Any], ...] = ()
    line: str = ""
    commands: list[Command] = field(default_factory=list)
    reads: dict[Value, None] = field(default_factory=dict)
    written: dict[int, None] = field(default_factory=dict)  # buffers


class Tracer(Capture):
    """Notes what one thread asks of one device.

    Args:
        device: the device.
        given: the memory of the call's arguments, which is other memory in each call.
    """

    def __init__(self, device: Device, given: Iterable[Storage] = ()) -> None:
        self.device = device
        self._given = frozenset(map(id, given))
        self.refusal = ""  # why what was captured cannot be replayed, and where
        self.path: list[bool] = []  # the conditions that the host has read
        self.reads_condition = ""  # what a refusal says of the first of them
        self.nodes: list[Node] = []
        self.storages: list[weakref.ref[Storage]] = []  # by number of their buffer
        self.outside: dict[int, Storage] = {}  # memory that was there before
        self.constants: dict[int, tuple[Storage, str]] = {}  # uploaded contents, and their digest
        self.leaves: dict[int, TensorBase] = {}  # that got gradients
        self.conditions: list[Callable[[], bool]] = []
        self.sources: list[str] = []
        self.again: list[Again] = []
        self.index_checks: dict[int, int] = {}  # numbers of launches by source
        self._numbers: weakref.WeakKeyDictionary[Storage, int] = weakref.WeakKeyDictionary()
        self._sizes: list[int] = []
        self._versions: list[int] = []
        self._born: set[int] = set()
        self._unused_marks: set[tuple[int, int]] = set()
        self._call: _Call | None = None
        self._recomputations: dict[int, int] = {0: 0}  # numbers of this trace by those of the process

    # What is told

    def allocated(self, device: Device, storage: Storage, tag: str) -> None:
        if not self._is_beside(device) and self._listens(device):
            self._born.add(self._number(storage))

    def launching(
        self, device: Device, launch: Launch, writes: Sequence[bool], storages: Sequence[Storage]
    ) -> bool:
        if not self._listens(device):
            return False
        bindings = tuple(map(self._binding, storages))
        varying = tuple(
            VaryingWord(offset, mark.source, mark.number, mark.half)
            for offset, mark in getattr(launch.push, "marks", ())
        )
        for word in varying:
            self._unused_marks.discard((word.source, word.number))
        plain = Launch(launch.shader, launch.groups, bytes(launch.push), launch.constants, launch.flops)
        self._add(
            BoundLaunch(plain, bindings, tuple(writes), varying),
            [b.buffer for b, write in zip(bindings, writes, strict=True) if not write],
            [b.buffer for b, write in zip(bindings, writes, strict=True) if write],
            launch.shader.path,
        )
        return False

    def filling(self, device: Device, storage: Storage, word: int, first: int, count: int) -> bool:
        if self._listens(device):
            whole = self._binding(storage)
            piece = Binding(whole.buffer, whole.offset + 4 * first, 4 * count)
            partial = first > 0 or 4 * count < storage.nbytes
            self._add(BoundFill(piece, word), [whole.buffer] * partial, [whole.buffer], "fill")
        return False

    def host_call(
        self,
        device: Device,
        name: str,
        work: Callable[..., None],
        marks: Sequence[Mark],
        pieces: Sequence[tuple[Storage, int, int]],
        writes: Sequence[bool],
    ) -> bool:
        if self._is_beside(device) and all(writes):
            return False
        if self._listens(device):
            self._unused_marks.difference_update((mark.source, mark.number) for mark in marks)
            bindings = list[Binding]()
            for storage, offset, nbytes in pieces:
                whole = self._binding(storage)
                bindings.append(Binding(whole.buffer, whole.offset + offset, nbytes))
            self._add(
                HostCall(name, work, tuple(bindings), tuple(writes)),
                [b.buffer for b, write in zip(bindings, writes, strict=True) if not write],
                [b.buffer for b, write in zip(bindings, writes, strict=True) if write],
                name,
            )
        return False

    def uploaded(self, device: Device, storage: Storage, array: npt.NDArray[Any]) -> None:
        if not self._is_beside(device) and self._listens(device):
            number = self._number(storage)
            digest = hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()
            self.constants[number] = storage, digest
            self._versions[number] = 0

    def read(self, device: Device) -> None:
        if not self._is_beside(device):
            self.refused("reads elements of a tensor on the host")

    def refused(self, what: str) -> None:
        if not self.refusal:
            self.refusal = what + calling_line()

    def op(
        self, op: Op[...], operands: list[Any], arguments: dict[str, Any], compute: Callable[[], Any]
    ) -> Any:
        device = next((o.device for o in operands if isinstance(o, TensorBase)), None)
        if self._call is not None or device is None or not self._listens(device):
            return compute()
        tensors = tuple(self.operand(o) if isinstance(o, TensorBase) else o for o in operands)
        plain = tuple((name, _plain(value)) for name, value in arguments.items())
        self._call = _Call(op.name, op.name, tensors, plain, calling_line())
        try:
            result = compute()
            self._finish(result)
        finally:
            self._call = None
        return result

    def vary(self, name: str, numbers: Sequence[int | float], again: Again) -> list[Any]:
        source = len(self.sources)
        self.sources.append(name)
        self.again.append(again)
        self._unused_marks.update((source, position) for position in range(len(numbers)))
        return [varying(number, Mark(source, position)) for position, number in enumerate(numbers)]

    def depends(self, holds: Callable[[], bool]) -> None:
        self.conditions.append(holds)

    def leaf_gradient(self, leaf: Any) -> None:
        self.leaves[id(leaf)] = leaf

    def condition(self, tensor: Any, value: bool) -> None:
        if self._is_beside(tensor.device):
            return
        if not self.path:
            self.reads_condition = "reads elements of a tensor on the host" + calling_line()
        self.path.append(value)
        note_tensor_work(CONDITION, _Condition(value), [], [tensor], [])

    def stays(self, storage: Storage) -> bool:
        number = self._numbers.get(getattr(storage, "_whole", None) or storage)
        return id(storage) not in self._given and (number is None or number in self.outside)

    def index_check(self, number: int) -> int:
        self.index_checks[len(self.sources)] = number
        again = self.device.index_errors.keep(number)

        def keep() -> tuple[int]:
            again()
            return (number,)

        [marked] = self.vary("index check", [number], keep)
        return marked  # type: ignore[no-any-return]

    # The graph

    def _listens(self, device: Device) -> bool:
        if device is not self.device:
            self.refused(f"uses a second device, {device}")
            return False
        return True

    def _is_beside(self, device: Device) -> bool:
        """Whether it is the CPU, where contents are made that another device then gets, and shows."""
        return device.is_host and not self.device.is_host

    def _number(self, storage: Storage) -> int:
        number = self._numbers.get(storage)
        if number is None:
            number = self._numbers[storage] = len(self.storages)
            self.storages.append(weakref.ref(storage))
            self._sizes.append(storage.nbytes)
            self._versions.append(0)
        return number

    def _binding(self, storage: Storage) -> Binding:
        """The piece of a buffer that a storage is: all of it, unless it lies in another storage."""
        whole = getattr(storage, "_whole", None)
        offset = 0
        if whole is not None and whole in self._numbers:
            offset = storage.span.offset - whole.span.offset
        else:
            whole = storage
        number = self._number(whole)
        if number not in self._born and number not in self.constants:
            self.outside[number] = whole
        return Binding(number, offset, bound_bytes(storage.nbytes))  # the pool may have given more

    def operand(self, tensor: TensorBase) -> Operand:
        """A tensor as it is now."""
        storage = tensor.storage
        binding = self._binding(storage)
        shift = binding.offset // tensor.dtype.itemsize
        value = Value(binding.buffer, self._versions[binding.buffer])
        return Operand(value, tensor.shape, tensor.dtype.name, tensor.strides, tensor.offset + shift)

    def _add(self, command: Command, reads: Iterable[int], writes: Iterable[int], name: str) -> None:
        alone = self._call is None
        if self._call is None:
            self._call = _Call(name, line=calling_line())
        call = self._call
        call.commands.append(command)
        for number in reads:
            if number not in call.written:
                call.reads[Value(number, self._versions[number])] = None
        for number in writes:
            if number not in call.written:
                if self._versions[number] or number not in self._born:
                    call.reads[Value(number, self._versions[number])] = None
                call.written[number] = None
        if alone:
            self._finish(None)
            self._call = None

    def _finish(self, result: Any) -> None:
        """Make a node of the present call. One without commands, such as a view, is none."""
        call = self._call
        assert call is not None
        if not call.commands:
            return
        for number in call.written:
            if number in self.constants:
                self.refused("changes a tensor in place that was made of Python numbers")
            self._versions[number] += 1
        self.nodes.append(
            Node(
                call.name,
                call.op,
                call.operands,
                call.arguments,
                self.operand(result) if isinstance(result, TensorBase) else None,
                tuple(call.reads),
                tuple(Value(number, self._versions[number]) for number in call.written),
                tuple(call.commands),
                line=call.line.strip(" ()").removeprefix("called at "),
                recomputation=self._recomputations.setdefault(
                    tape.state.recomputation, len(self._recomputations)
                ),
            )
        )

    # The end

    def lost_numbers(self) -> list[str]:
        """Sources of varying numbers that no push constant took: a replay would not know where they went."""
        return [self.sources[source] for source, _ in sorted(self._unused_marks)]

    def left_over(self, known: Iterable[TensorBase]) -> list[int]:
        """Buffers that were made in the call, are still alive, and belong to none of the known tensors."""
        expected = {self._numbers.get(tensor.storage) for tensor in known} | self.constants.keys()
        return [number for number in self._born - expected if self.storages[number]() is not None]

    def graph(
        self, inputs: Sequence[TensorBase], outputs: Sequence[TensorBase], state: Sequence[TensorBase]
    ) -> Graph:
        """The graph, given the tensors that go in, those that come out, and those that stay elsewhere."""
        first = {self.number_of(tensor): None for tensor in inputs}
        kinds: dict[int, Kind] = dict.fromkeys(range(len(self.storages)), "temporary")
        kinds.update(dict.fromkeys(self.outside, "captured"))
        kinds.update(dict.fromkeys(self.constants, "constant"))
        kinds.update(dict.fromkeys((self.number_of(t) for t in outputs if self.is_born(t)), "output"))
        kinds.update(dict.fromkeys((self.number_of(t) for t in state if self.is_born(t)), "state"))
        kinds.update(dict.fromkeys(first, "input"))
        results = tuple(map(self.operand, outputs))
        kept = {operand.value for operand in (*results, *map(self.operand, state))}
        kept |= {
            Value(number, self._versions[number])
            for number, kind in kinds.items()
            if kind in ("captured", "input") and self._versions[number]
        }
        buffers = {number: GraphBuffer(number, self._sizes[number], kind) for number, kind in kinds.items()}
        whole = Graph(
            self.device.name,
            buffers,
            tuple(self.nodes),
            tuple(first),
            results,
            tuple(self.sources),
            frozenset(kept),
        )
        return whole.with_nodes(self.nodes)

    def number_of(self, tensor: TensorBase) -> int:
        """The number of a tensor's buffer."""
        return self._binding(tensor.storage).buffer

    def is_born(self, tensor: TensorBase) -> bool:
        """Whether a tensor's memory was allocated in the call."""
        return self.number_of(tensor) in self._born

    def is_outside(self, tensor: TensorBase) -> bool:
        """Whether the call has used memory of this tensor that was there before."""
        return self._numbers.get(tensor.storage) in self.outside

    def is_constant(self, tensor: TensorBase) -> bool:
        """Whether a tensor's elements came from the host in the call."""
        return self.number_of(tensor) in self.constants


def _plain(value: Any) -> Any:
    """An argument of an op as a node keeps it: nothing that holds a tensor."""
    if isinstance(value, (int, float, str, bool, type(None), np.dtype, np.generic)):
        return value
    if value is Ellipsis or (
        isinstance(value, slice)
        and all(part is None or isinstance(part, int) for part in (value.start, value.stop, value.step))
    ):
        return value
    if isinstance(value, (tuple, list)):
        return (
            type(value)(map(_plain, value))
            if type(value) in (tuple, list, Size)
            else Foreign(type(value).__name__)
        )
    return Foreign(type(value).__name__)


def run(tracer: Tracer, call: Callable[[], T]) -> T:
    """Call a function while a tracer listens.

    The caller holds :data:`dl4all.scheduler.listeners.capture.lock`.
    """
    with listeners.listening(tracer):
        return call()


def trace(function: Callable[..., Any], *args: Any) -> Graph:
    """The graph of a call, for a look at it.

    Args:
        function: takes tensors and others; returns a tensor, or a tuple or list of them.
        args: at least one tensor, all on one device that runs programs.

    Raises:
        ArgumentError: there is no tensor, or the call does what no graph can, such as reading elements.

    Example:
        >>> import dl4all as dl
        >>> graph = trace(lambda x: (x + 1).relu(), dl.ones(3, device="null:0"))
        >>> [node.name for node in graph.nodes]
        ['add', 'relu']
    """
    return traced(function, *args)[0]


def traced(function: Callable[..., Any], *args: Any) -> tuple[Graph, Tracer, Any]:
    """The graph of a call as :func:`trace` gives it, the memory that it was found in, and the result."""
    inputs = [argument for argument in args if isinstance(argument, TensorBase)]
    if not inputs:
        raise ArgumentError("[trace] expected a tensor among the arguments, which says the device")
    tracer = Tracer(inputs[0].device)
    with lock:
        result = run(tracer, lambda: function(*args))
    outputs = (
        [result] if isinstance(result, TensorBase) else [r for r in result or () if isinstance(r, TensorBase)]
    )
    if tracer.refusal:
        raise ArgumentError(f"[trace] the function {tracer.refusal}")
    state = [leaf.grad_meta.grad for leaf in tracer.leaves.values() if leaf.grad_meta.grad is not None]
    return tracer.graph(inputs, outputs, state), tracer, result
