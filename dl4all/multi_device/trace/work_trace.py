"""The work of each module of a model in a step, found out without computing anything.

The structure of the model runs on a simulated device that lets no op compute. There its launches are counted,
for the module whose call they belong to; in the backward pass, for the module whose call made the node. A
first run finds out which tensors go from one module to another, and with that where the model can be cut in
two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dl4all.autograd.backward_pass import backward
from dl4all.errors import ArgumentError, DTypeError, OutOfMemoryError, ShapeError, TraceError
from dl4all.multi_device.replica import structure_copy
from dl4all.multi_device.structure import leaves_of, map_leaves, tensors_of
from dl4all.multi_device.trace.call_sequence import DataFlow, Ledger, ModuleCall, nbytes_of
from dl4all.nn.module import Module, Parameter
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.random import generator
from dl4all.runtime.simulated import clock
from dl4all.runtime.work import WorkCounts
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.scheduler.device.device import Device
from dl4all.tensor.creation import empty, from_numpy
from dl4all.tensor.tensor import Tensor

Loss = Callable[..., Any]
LOSS = "(loss)"
ENDLESS = 1 << 62  # bytes: a trace is to find out how much a model needs
USERS_MISTAKES = (
    ShapeError,
    DTypeError,
    OutOfMemoryError,
)  # inputs do not fit the model: no defect of the trace


@dataclass(frozen=True)
class ModuleWork:
    """A call of a module that has none below it, or what its parent does until the next such call.

    Bytes are those of one call: a parameter that several calls use counts for the first of them.
    """

    path: str
    """As ``named_modules`` has it; ``"(loss)"`` for what follows the model."""
    kind: str
    """The name of the module's class; empty for ops between calls of modules."""
    forward: WorkCounts
    backward: WorkCounts
    parameters: int = 0
    """Bytes of its parameters."""
    trained: tuple[int, ...] = ()
    """Bytes of each of its parameters that get gradients."""
    trained_elements: int = 0
    buffers: int = 0
    saved: int = 0
    """Bytes of activations that stay until the backward pass."""
    output: int = 0
    """Bytes of its results."""
    keeps_output: bool = True
    """Whether these are among what stays."""
    workspace: int = 0
    """The most bytes that there are meanwhile, beside what stays: operands, results, temporary ones."""
    child: str = ""
    """The path of the module directly below the model in which it happens; empty for none."""
    cut: int | None = None
    """Bytes that go on if the model is cut behind this module; None where it cannot be cut."""

    @property
    def step(self) -> WorkCounts:
        """Forward and backward."""
        return self.forward + self.backward


class WorkTrace(NamedTuple):
    """The work of a model, in the order of calls."""

    modules: tuple[ModuleWork, ...]
    input: int
    """Bytes of the example inputs."""
    training: bool

    @property
    def forward(self) -> WorkCounts:
        """That of the whole model, and of the loss if there is one."""
        return sum((module.forward for module in self.modules), WorkCounts())

    @property
    def backward(self) -> WorkCounts:
        """That of the whole model, and of the loss if there is one."""
        return sum((module.backward for module in self.modules), WorkCounts())

    @property
    def step(self) -> WorkCounts:
        """Forward and backward."""
        return self.forward + self.backward


def trace_work(
    model: Module,
    *example_inputs: Any,
    training: bool = True,
    loss: Loss | None = None,
    targets: Sequence[Any] = (),
) -> WorkTrace:
    """Find out what each module does in a step, without computing: the model is neither changed nor moved.

    Args:
        model: on any device.
        example_inputs: what the model is called with. Only the shapes of floats matter; ints keep their
            values.
        training: whether a backward pass follows; otherwise the model runs as after ``eval()``.
        loss: ``loss(output, *targets)`` is where the backward pass starts; without it, all outputs are given
            gradients.
        targets: what the loss takes beside the output.

    Raises:
        TraceError: the model looks at numbers that are not there, for nothing is computed.
        ShapeError, DTypeError: the inputs do not fit the model.
        OutOfMemoryError: the host cannot even reserve what the model would need.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Linear(4, 3), dl.nn.ReLU())
        >>> trace = trace_work(net, dl.zeros(2, 4, device="cpu"))
        >>> [(m.path, m.kind, m.forward.flops, m.parameters, m.cut) for m in trace.modules]
        [('0', 'Linear', {'linalg.linear': 48.0}, 60, 24), ('1', 'ReLU', {}, 0, None)]
    """
    with _undisturbed():
        device = simulated_device(computes=False, memory=ENDLESS)
        network = structure_copy(model, device)
        if not training:
            network.eval()
        elif not model.training:
            network.train()
        inputs, labels = _placed(example_inputs, device), _placed(tuple(targets), device)
        start = structure_copy(loss, device) if isinstance(loss, Module) else loss
        try:
            flow = _data_flow(network, inputs)
            ledger = _ledger(network, device, inputs, training, start, labels)
        except USERS_MISTAKES:
            raise
        except Exception as error:
            raise TraceError(
                f"[trace_work] {type(model).__name__} does not run where nothing is computed "
                f"({type(error).__name__}: {error}); if what it does depends on numbers, it must run on a "
                "real device"
            ) from error
    cuts = [*flow.cuts(), None]
    modules = [_module_work(*each) for each in zip(ledger.calls, flow.added(), cuts, strict=True)]
    modules = _with_workspace(modules, ledger.calls)
    kept = list(_without_empty(modules))
    end = len(kept) - 1 - (kept[-1].path == LOSS)
    kept[end] = replace(kept[end], cut=None)  # nothing of the model follows
    return WorkTrace(tuple(kept), sum(map(nbytes_of, tensors_of(inputs))), training)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Leave the random numbers and the virtual time of this thread as they are."""
    now = clock.now()
    try:
        with generator.replayed(generator.default_generator().get_state()):
            yield
    finally:
        clock.set_to(now)


def _placed(value: Any, device: Device) -> Any:
    """The same structure with tensors on a device in the place of tensors and arrays."""

    def placed(leaf: Any) -> Tensor:
        if kind_of(leaf.dtype) == "f":
            return empty(*leaf.shape, dtype=leaf.dtype, device=device)
        return from_numpy((leaf.detach().numpy() if isinstance(leaf, Tensor) else leaf).copy(), device)

    return map_leaves(value, placed, (Tensor, np.ndarray))


def _data_flow(network: Module, inputs: Any) -> DataFlow:
    """Run the network once so that every op on floats leaves a node."""
    flow = DataFlow(network, tensors_of(inputs))
    frozen = [parameter for parameter in network.parameters() if not parameter.requires_grad]
    floats = [parameter for parameter in frozen if kind_of(parameter.dtype) == "f"]
    for parameter in floats:
        parameter.requires_grad_()
    with flow.attached(), tape.gradients(True):
        outputs = network(*inputs)
    for parameter in floats:
        parameter.requires_grad_(False)
    flow.end(tensors_of(outputs))
    return flow


def _ledger(
    network: Module, device: Device, inputs: Any, training: bool, loss: Loss | None, targets: Any
) -> Ledger:
    """Run a step, and write down what each call does."""
    ledger = Ledger(network, device, tensors_of((inputs, targets)))
    with ledger.attached(), tape.gradients(training):
        outputs = network(*inputs)
        ledger.move_on(LOSS, None)
        if loss is not None:
            outputs = loss(outputs, *targets)
        roots = [tensor for tensor in tensors_of(outputs) if training and tape.wants_gradient(tensor)]
        if roots:
            ledger.begin_backward()
            backward(roots, [empty(*root.shape, dtype=root.dtype, device=device) for root in roots])
    return ledger


def _without_empty(modules: Sequence[ModuleWork]) -> Iterator[ModuleWork]:
    """The calls without those that do nothing; a cut behind such a one is behind what came before."""
    kept: ModuleWork | None = None
    for module in modules:
        empty_call = not module.kind and not module.step.launches and not module.parameters + module.buffers
        if kept is not None and empty_call:
            kept = replace(kept, cut=module.cut if kept.cut is None else kept.cut)
        elif not empty_call:
            if kept is not None:
                yield kept
            kept = module
    if kept is not None:
        yield kept


def _module_work(call: ModuleCall, state: Sequence[TensorBase], cut: int | None) -> ModuleWork:
    """The work of a call, which is the first to use some of the parameters and buffers."""
    parameters = [tensor for tensor in state if isinstance(tensor, Parameter)]
    trained = tuple(nbytes_of(tensor) for tensor in parameters if tensor.requires_grad)
    return ModuleWork(
        call.path,
        "" if call.module is None else type(call.module).__name__,
        call.forward,
        call.backward,
        sum(map(nbytes_of, parameters)),
        trained,
        sum(tensor.numel() for tensor in parameters if tensor.requires_grad),
        sum(nbytes_of(tensor) for tensor in state if not isinstance(tensor, Parameter)),
        call.saved,
        call.output,
        call.keeps_output,
        child=call.child,
        cut=cut,
    )


def _with_workspace(modules: Sequence[ModuleWork], calls: Sequence[ModuleCall]) -> list[ModuleWork]:
    """The memory of each call at its peaks, without permanent parts: activations so far, and gradients.

    In its backward pass the activations of later calls are gone, and the gradients of their parameters are
    there.
    """
    saved = np.cumsum([module.saved for module in modules])
    gradients = np.cumsum([sum(module.trained) for module in reversed(modules)])[::-1]
    return [
        replace(module, workspace=int(max(0, call.peak - before, call.backward_peak - before - behind)))
        for module, call, before, behind in zip(modules, calls, saved, gradients, strict=True)
    ]


class Share(NamedTuple):
    """Work that grows with the batch: seconds, bytes and operations of a batch are linear in its size."""

    fixed: WorkCounts
    per_sample: WorkCounts

    def at(self, batch: int) -> WorkCounts:
        """The work with a batch."""
        return self.fixed + self.per_sample * batch


class BatchWork(NamedTuple):
    """The work of a model as a function of the size of the batch."""

    step: Share
    """Forward and backward."""
    forward: Share
    """Forward in training, without what follows."""
    inference: Share
    """Forward after ``eval()``."""


def batch_work(
    model: Module, *example_inputs: Any, loss: Loss | None = None, targets: Sequence[Any] = ()
) -> BatchWork:
    """The work of a model by the size of the batch, from a batch as given and one of twice the size.

    Args:
        model, example_inputs, loss, targets: as for :func:`trace_work`. The first axis of every input and
            target is the batch.

    Raises:
        ArgumentError: there is no input with samples.
        TraceError, ShapeError, DTypeError: as for :func:`trace_work`.

    Example:
        >>> import dl4all as dl
        >>> work = batch_work(dl.nn.Linear(4, 3), dl.zeros(2, 4, device="cpu"))
        >>> work.inference.fixed.nbytes, work.inference.per_sample.nbytes  # parameters; operands
        (60.0, 28.0)
        >>> work.inference.at(10).flops
        {'linalg.linear': 240.0}
    """
    batch = samples_of("batch_work", example_inputs, targets)
    doubled, more = resized(example_inputs, 2 * batch), resized(tuple(targets), 2 * batch)
    once = trace_work(model, *example_inputs, loss=loss, targets=targets)
    twice = trace_work(model, *doubled, loss=loss, targets=more)
    plain = [trace_work(model, *inputs, training=False) for inputs in (example_inputs, doubled)]
    return BatchWork(
        _share(once.step, twice.step, batch),
        _share(once.forward, twice.forward, batch),
        _share(plain[0].forward, plain[1].forward, batch),
    )


def _share(once: WorkCounts, twice: WorkCounts, batch: int) -> Share:
    per_sample = (twice - once) * (1 / batch)
    return Share(once - per_sample * batch, per_sample)


def samples_of(name: str, *values: Any) -> int:
    """The number of samples that the tensors in structures have along their first axes.

    Args:
        name: of the function that asks, for errors.

    Raises:
        ArgumentError: none, or some have more than others.
    """
    sizes = {tensor.shape[0] if tensor.shape else 0 for tensor in leaves_of(values, (Tensor, np.ndarray))}
    if len(sizes) != 1 or 0 in sizes:
        raise ArgumentError(
            f"[{name}] expected inputs with the same number of samples along their first axes, got "
            f"{sorted(sizes)}"
        )
    return int(sizes.pop())


def resized(value: Any, batch: int) -> Any:
    """The same structure with another number of samples: those that are there, from the first one on, again.

    >>> resized((np.array([[1, 2], [3, 4]]), "x"), 3)[0].tolist()
    [[1, 2], [3, 4], [1, 2]]
    """

    def resized_leaf(leaf: Any) -> Any:
        shape = (batch, *leaf.shape[1:])
        if kind_of(leaf.dtype) == "f":  # only shapes of floats matter to a trace
            return np.broadcast_to(np.zeros((), leaf.dtype), shape)
        return np.resize(leaf.detach().numpy() if isinstance(leaf, Tensor) else leaf, shape)

    return map_leaves(value, resized_leaf, (Tensor, np.ndarray))
