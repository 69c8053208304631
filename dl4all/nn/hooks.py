"""Functions that modules call before and after ``forward``, and in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from dl4all import autograd
from dl4all.errors import ArgumentError
from dl4all.ops.core import tape
from dl4all.ops.core.removable_handle import RemovableHandle, add_hook
from dl4all.tensor.tensor import Tensor

Function = Callable[..., Any]


class Computing(Protocol):
    """Computes the tensor of a name before each call of its module."""

    name: str

    def __call__(self, module: Any, inputs: Any) -> None: ...


C = TypeVar("C", bound=Computing)


class Hook(NamedTuple):
    """A function that a module calls."""

    kind: str  # "forward_pre", "forward", "backward_pre" or "backward"; of a state: see dl4all.nn.state
    function: Function
    with_kwargs: bool = False
    always: bool = False


Hooks = dict[int, Hook]
"""Hooks of all kinds in the order in which they are called."""

everywhere: Hooks = {}
"""The hooks of all modules."""


def register(hooks: Hooks, hook: Hook, *, prepend: bool = False) -> RemovableHandle:
    """Add a hook after the others, or before them.

    Raises:
        ArgumentError: it cannot be called.
    """
    if not callable(hook.function):
        raise ArgumentError(f"[register_{hook.kind}_hook] expected a function, got {hook.function!r}")
    return add_hook(hooks, hook, first=prepend)


def of_kind(hooks: Hooks, kind: str) -> list[Hook]:
    """The hooks of one kind; those of all modules come first."""
    return [hook for hook in (*everywhere.values(), *hooks.values()) if hook.kind == kind]


def computing(module: Any, kind: type[C], name: str) -> C | None:
    """The function of a class that a module calls before ``forward`` to compute its tensor of a name."""
    for hook in of_kind(module._call_hooks, "forward_pre"):
        if isinstance(hook.function, kind) and hook.function.name == name:
            return hook.function
    return None


def call(module: Any, hooks: Hooks, forward: Function, inputs: Any, options: dict[str, Any]) -> Any:
    """``forward(*inputs, **options)`` with the hooks around it."""
    for hook in of_kind(hooks, "forward_pre"):
        inputs, options = _before(module, hook, inputs, options)
    watch = _BackwardWatch.of(module, hooks)
    if watch is not None:
        inputs = watch.gate_inputs(inputs)
    called = set()
    after = of_kind(hooks, "forward")
    try:
        output = forward(*inputs, **options)
        for number, hook in enumerate(after):
            called.add(number)
            output = _after(module, hook, inputs, options, output)
    except BaseException:
        for number, hook in enumerate(after):
            if hook.always and number not in called:
                _after(module, hook, inputs, options, None)
        raise
    return output if watch is None else watch.gate_outputs(output)


def _before(module: Any, hook: Hook, inputs: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    if hook.with_kwargs:
        changed = hook.function(module, inputs, options)
        if changed is None:
            return inputs, options
        if not (isinstance(changed, tuple) and len(changed) == 2):
            raise ArgumentError(
                "[register_forward_pre_hook] a hook with kwargs returns None or (args, kwargs), got "
                f"{changed!r}"
            )
        return changed
    changed = hook.function(module, inputs)
    if changed is None:
        return inputs, options
    return (changed if isinstance(changed, tuple) else (changed,)), options


def _after(module: Any, hook: Hook, inputs: Any, options: dict[str, Any], output: Any) -> Any:
    arguments = (inputs, options, output) if hook.with_kwargs else (inputs, output)
    changed = hook.function(module, *arguments)
    return output if changed is None else changed


# The backward pass: nodes of the graph before and after the module's own


class _Gate(autograd.Function):
    """Hands tensors on; in the backward pass a function sees their gradients and may replace them."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        ctx.seen, *tensors = inputs
        return tuple(tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, *ctx.seen(gradients)


class _BackwardWatch:
    """One call of a module that has backward hooks."""

    def __init__(self, module: Any, before: list[Hook], after: list[Hook]) -> None:
        self.module, self.before, self.after = module, before, after
        self.inputs = 0  # how many arguments there are
        self.watched: list[int] | None = None  # which of them get gradients
        self.outgoing: tuple[Any, ...] = ()  # the gradients of the outputs

    @staticmethod
    def of(module: Any, hooks: Hooks) -> _BackwardWatch | None:
        before, after = of_kind(hooks, "backward_pre"), of_kind(hooks, "backward")
        return _BackwardWatch(module, before, after) if before or after else None

    def gate_inputs(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.inputs = len(inputs)
        self.watched = _watched(inputs)
        return _gated(inputs, self.watched, self._saw_inputs)

    def gate_outputs(self, output: Any) -> Any:
        outputs = tuple(output) if isinstance(output, (tuple, list)) else (output,)
        watched = _watched(outputs)
        count = len(outputs)

        def seen(gradients: tuple[Any, ...]) -> tuple[Any, ...]:
            return self._saw_outputs(_spread(gradients, watched, count), watched)

        gated = _gated(outputs, watched, seen)
        if not isinstance(output, (tuple, list)):
            return gated[0]
        return type(output)(*gated) if hasattr(output, "_fields") else type(output)(gated)

    def _saw_outputs(self, gradients: tuple[Any, ...], watched: list[int]) -> tuple[Any, ...]:
        for hook in self.before:
            changed = hook.function(self.module, gradients)
            if changed is not None:
                gradients = changed if isinstance(changed, tuple) else (changed,)
        self.outgoing = gradients
        if not self.watched:  # no gradient of an input will come by
            self._saw_inputs(())
        return tuple(gradients[at] for at in watched)

    def _saw_inputs(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        watched = self.watched or []
        spread = _spread(gradients, watched, self.inputs)
        for hook in self.after:
            changed = hook.function(self.module, spread, self.outgoing)
            if changed is None:
                continue
            spread = changed if isinstance(changed, tuple) else (changed,)
            if len(spread) != self.inputs:
                raise ArgumentError(
                    f"[register_full_backward_hook] a hook returns a gradient for each of {self.inputs} "
                    f"inputs or None, got {len(spread)}"
                )
        return tuple(spread[at] for at in watched)


def _watched(values: tuple[Any, ...]) -> list[int]:
    """The positions of the tensors that get gradients."""
    return [at for at, value in enumerate(values) if isinstance(value, Tensor) and tape.wants_gradient(value)]


def _gated(values: tuple[Any, ...], watched: list[int], seen: Function) -> tuple[Any, ...]:
    if not watched:
        return values
    gated = dict(zip(watched, _Gate.apply(seen, *(values[at] for at in watched)), strict=True))
    return tuple(gated.get(at, value) for at, value in enumerate(values))


def _spread(gradients: tuple[Any, ...], watched: list[int], count: int) -> tuple[Any, ...]:
    """The gradients at the positions of what they belong to, None elsewhere."""
    found = dict(zip(watched, gradients, strict=True))
    return tuple(found.get(at) for at in range(count))


# Hooks of all modules


def register_module_forward_hook(
    hook: Function, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call ``hook(module, inputs, output)`` after the ``forward`` of every module.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.nn.modules.module import register_module_forward_hook
        >>> seen = []
        >>> with register_module_forward_hook(lambda module, inputs, output: seen.append(output.shape)):
        ...     _ = dl.nn.Linear(2, 3)(dl.ones(5, 2, device="cpu"))
        >>> seen
        [(5, 3)]
    """
    return register(everywhere, Hook("forward", hook, with_kwargs, always_call))


def register_module_forward_pre_hook(hook: Function) -> RemovableHandle:
    """Call ``hook(module, inputs)`` before the ``forward`` of every module."""
    return register(everywhere, Hook("forward_pre", hook))


def register_module_full_backward_hook(hook: Function) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` for every module in the backward pass."""
    return register(everywhere, Hook("backward", hook))


def register_module_full_backward_pre_hook(hook: Function) -> RemovableHandle:
    """Call ``hook(module, grad_output)`` for every module in the backward pass, before its own gradients."""
    return register(everywhere, Hook("backward_pre", hook))
