"""``dl.compile``: functions that are traced, made smaller, and replayed.

A call with arguments of a kind that has not come before runs as always, and is traced. When two traces in a
row are the same, and the call left everything that it depends on as it was, the graph is believed: the next
call replays it. Whatever cannot be replayed runs as always, after one warning that says why and where.
"""

from __future__ import annotations

import contextlib
import functools
import types
import warnings
import weakref
from collections.abc import Callable, Hashable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from dl4all.errors import ArgumentError, DeviceLostError, Dl4allError, GradientError
from dl4all.graph.run.differentiation import Backward, capture_backward, is_differentiable
from dl4all.graph.run.progress import shown_when_long
from dl4all.graph.run.specialization import (
    Optimize,
    Specialization,
    Traced,
    TraceIdentity,
    Untraceable,
    optimized,
)
from dl4all.graph.tracing.gradient_state import GradientState, HistoryWatch, gradient
from dl4all.graph.tracing.guards import GuardedMemory, Guards, Wrapper
from dl4all.graph.tracing.structure import flatten, mapped
from dl4all.graph.tracing.trace import OtherCondition, Tracer, run
from dl4all.ops.conv.algorithms import preferring_one_kernel
from dl4all.ops.core import autocast, tape
from dl4all.ops.core.arguments.mixed_devices import brought
from dl4all.ops.core.arguments.named_cpu import comes_along
from dl4all.ops.core.dtypes import default
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.untracked import Untracked
from dl4all.ops.core.vmap_hook import is_batching
from dl4all.ops.linalg.matmul_precision import get_float32_matmul_precision
from dl4all.runtime import fork
from dl4all.scheduler import listeners
from dl4all.scheduler.check_mode import checks_at_once
from dl4all.scheduler.device.current import chosen
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.listeners import capture

P = ParamSpec("P")
T = TypeVar("T")
Mode = Literal["default", "reduce-overhead", "max-autotune"]
MODES = ("default", "reduce-overhead", "max-autotune")

MOST_SPECIALIZATIONS = 8
"""Kinds of arguments, and states of what a function depends on, until new ones run as always."""

MOST_TRACES = 6
"""Traces of one kind of arguments, of which no two in a row are the same, until it is given up."""

MOST_PENDING = 64
"""Kinds of arguments that were traced and not compiled yet; the oldest are forgotten."""

COMPILERS = "dl4all.compilers"
"""The group of entry points by which packages bring other compilers: functions of what is to be compiled."""

BUILT_IN = (EntryPoint("iree", "dl4all.onnx.iree_compiler:IreeModule", COMPILERS),)
OF_PYTORCH = ("inductor", "aot_eager", "cudagraphs", "onnxrt", "openxla", "tvm")
"""PyTorch's names of compilers, which scripts give; they change nothing."""

CALLER = 5
"""Frames from a warning to the caller of a compiled function."""


class CompileWarning(UserWarning):
    """A function, or some of its calls, run uncompiled."""


METHODS = "_compiled_methods"
"""The attribute in which an object keeps what is compiled of its methods."""


class CompiledMethods(Untracked, dict[Any, Any]):
    """The compiled methods of one object, by those of its class. Copies and pickles start empty."""

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledMethods, ()


class Compiled(Wrapper, Generic[P, T]):
    """A compiled function or module; made by :func:`compile`.

    Attributes that it does not have itself are those of what was compiled, so that a compiled module has
    ``parameters()``, ``train()`` and so on.
    """

    def __init__(self, function: Callable[P, T], mode: Mode, optimize: Optimize = optimized) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self.mode = mode
        self._optimize = optimize
        self.specializations: dict[Hashable, list[Specialization]] = {}
        # By kind of arguments and of gradients before the call: how many there were, and the last one.
        self._traces: dict[tuple[Hashable, Hashable], tuple[int, TraceIdentity | None]] = {}
        self._given_up: dict[Hashable, str] = {}
        # By the kind of a call, a tensor to whose device arguments come along, wherever that is moved.
        self._weights: dict[Hashable, weakref.ref[Any]] = {}
        self._warned: set[str] = set()
        self._lock = fork.rlock()

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_function"), name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method, in a class body; each instance keeps what is compiled for it."""
        if instance is None or not hasattr(type(self._function), "__get__"):
            return self
        if not hasattr(instance, "__dict__"):  # of a class with slots: instances are arguments like others
            return types.MethodType(self, instance)
        methods = vars(instance).setdefault(METHODS, CompiledMethods())
        if self not in methods:
            bound = self._function.__get__(instance, owner)
            methods[self] = Compiled(bound, self.mode, self._optimize)
        return methods[self]

    def __repr__(self) -> str:
        return f"compiled({self._function!r})"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        function = self._function
        if not _can_compile_now():
            return function(*args, **kwargs)
        tensors: list[Any] = []
        others: list[Any] = []
        structure = flatten((args, kwargs), tensors, others)
        tensors += [grad for t in tensors if (grad := gradient(t)) is not None]
        key = structure, _kinds(tensors), _settings()
        with self._lock:
            known = self.specializations.get(key, [])
            for found in known:
                if found.holds(tensors):
                    try:
                        result = found(tensors)
                    except OtherCondition:
                        continue
                    if known[0] is not found:  # conditions are often as they were in the call before
                        self.specializations[key] = [found, *(one for one in known if one is not found)]
                    return result  # type: ignore[no-any-return]
        weight = self._weights[key]() if key in self._weights else None
        if weight is not None and not weight.device.is_cpu:
            args, kwargs = self._brought((args, kwargs), weight.device)
            return self(*args, **kwargs)
        if key in self._given_up or not capture.lock.acquire(blocking=False):
            return function(*args, **kwargs)
        try:
            return self._trace(key, args, kwargs, tensors, others)  # type: ignore[no-any-return]
        finally:
            capture.lock.release()

    def _name(self) -> str:
        return getattr(self._function, "__name__", type(self._function).__name__)

    def __setattr__(self, name: str, value: Any) -> None:
        if "_lock" in vars(self) and name not in vars(self):  # made, and not an attribute of its own
            setattr(self._function, name, value)
        else:
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return compile, (self._function, self.mode)  # what was compiled stays with the original

    def wrapped(self) -> Any:
        return self._function

    def reset(self) -> None:
        """Forget everything that was compiled, and free its memory."""
        with self._lock:
            for known in (self.specializations, self._traces, self._given_up, self._weights):
                known.clear()

    def _trace(
        self, key: Hashable, args: Any, kwargs: dict[str, Any], tensors: list[Any], others: list[Any]
    ) -> Any:
        """Run the call as always, and compile it if its trace is that of the call before."""
        guards = Guards({"the function": self._function, "an argument": others})
        device = next((t.device for t in (*tensors, *guards.tensors)), None)
        weights = (*guards.tensors, *(t for t in tensors if t.requires_grad))
        elsewhere = next((t for t in weights if not t.device.is_cpu), None)
        if elsewhere is not None and any(map(comes_along, tensors)):
            self._weights[key] = weakref.ref(elsewhere)
            args, kwargs = self._brought((args, kwargs), elsewhere.device)
            return self(*args, **kwargs)
        if device is None or device.simulated is not None:
            return self._function(*args, **kwargs)
        first = all(kind[0] != key for kind in self._traces)
        with self._measures(device, first):
            return self._trace_on(device, key, args, kwargs, tensors, guards)

    def _brought(self, given: Any, device: Device) -> Any:
        """The arguments with data of the CPU for which nobody named it on the device that computes."""

        def move(tensor: Any) -> Any:
            return brought(self._name(), tensor, device) if comes_along(tensor) else tensor

        return mapped(given, move)

    def _measures(self, device: Device, first: bool) -> contextlib.ExitStack:
        """Settings of the mode while a call is traced or compiled."""
        stack = contextlib.ExitStack()
        if self.mode == "reduce-overhead":
            stack.enter_context(preferring_one_kernel())
        elif self.mode == "max-autotune" and first and not device.is_host:
            stack.enter_context(autotune.tuning(device))
        return stack

    def _trace_on(
        self,
        device: Device,
        key: Hashable,
        args: Any,
        kwargs: dict[str, Any],
        tensors: list[Any],
        guards: Guards,
    ) -> Any:
        tracer = Tracer(device, [tensor.storage for tensor in tensors])
        visible = list({id(t): t for t in (*tensors, *guards.tensors)}.values())
        wanted = [t for t in visible if t.requires_grad and t.device is device]
        state, watch = GradientState(visible), HistoryWatch(tracer)
        arguments = [GuardedMemory.of("an argument", tensor) for tensor in tensors]

        def call() -> tuple[Any, Backward | None]:
            tape.state.observer = watch
            try:
                with autocast.without_casts():  # a replay must cast what parameters have become
                    result = self._function(*args, **kwargs)
                if state.has_new_history():
                    tracer.refused("changes a tensor in place that gradients flow through")
                    return result, None
                return result, _backward_of(result, wanted, tracer, watch)
            finally:
                tape.state.observer = None

        result, backward = run(tracer, call)
        try:
            found = Traced(tracer, guards, arguments, result, state, backward)
        except Untraceable as problem:
            self._give_up(key, str(problem))
            return result
        # A call that adds to gradients is another one than that which makes them, and they may take turns.
        kind = key, (state.have_gradients, *tracer.path)
        count, before = self._traces.pop(kind, (0, None))
        while len(self._traces) >= MOST_PENDING:
            self._traces.pop(next(iter(self._traces)))
        self._traces[kind] = count + 1, found.identity
        if before is not None and before == found.identity and not found.change:
            self._traces.pop(kind)
            if why := self._specialize(key, found):
                self._give_up(key, why)
        elif count + 1 >= MOST_TRACES or self._traces_of(key) >= 2 * MOST_TRACES:
            what = f"changes {found.change}" if found.change else "does something else in each call"
            self._give_up(key, what)
        return result

    def _traces_of(self, key: Hashable) -> int:
        return sum(count for kind, (count, _) in self._traces.items() if kind[0] == key)

    def _specialize(self, key: Hashable, found: Traced) -> str:
        """Compile a trace. Returns why that cannot be, or nothing."""
        if sum(map(len, self.specializations.values())) >= MOST_SPECIALIZATIONS:
            return f"was called in {MOST_SPECIALIZATIONS} ways already, which stay compiled"
        try:
            with shown_when_long(f"compiling {self._name()}"):
                made = Specialization(found, self._optimize)
        except DeviceLostError:
            raise
        except Dl4allError as error:
            return f"cannot be compiled: {error}"
        self.specializations.setdefault(key, []).insert(0, made)
        return ""

    def _give_up(self, key: Hashable, why: str) -> None:
        for kind in [kind for kind in self._traces if kind[0] == key]:
            del self._traces[kind]
        self._given_up[key] = why
        if why not in self._warned:
            self._warned.add(why)
            message = f"[compile] {self._name()} {why}; it runs uncompiled"
            warnings.warn(message, CompileWarning, stacklevel=CALLER)


def _backward_of(result: Any, wanted: list[Any], tracer: Tracer, watch: HistoryWatch) -> Backward | None:
    """Let the gradients of a result be traced, if it has any."""
    outputs: list[Any] = []
    flatten(result, outputs, [])
    if not any(map(is_differentiable, outputs)):
        return None
    if any(t.grad_meta.hooks for t in wanted if t.grad_meta.node is None):
        tracer.refused("takes gradients of a tensor that has hooks")
        return None
    watch.refuses_hooks = True
    try:
        return capture_backward(
            outputs, wanted, lambda: (len(tracer.nodes), len(tracer.sources)), watch.first
        )
    except GradientError as error:
        tracer.refused(f"has gradients that cannot be traced: {error}")
        return None


def _can_compile_now() -> bool:
    """Whether this thread runs plainly: no capture goes on, and nobody looks at each op."""
    state = tape.state
    return (
        not (listeners.active and listeners.captured())
        and not is_batching()
        and not state.detect_anomaly
        and state.recompute_hook is None
        and state.observer is None
        and not checks_at_once()
    )


def _settings() -> Hashable:
    """The settings that ops and new tensors depend on besides their arguments."""
    return tape.state.enabled, autocast.settings(), get_float32_matmul_precision(), default.dtype, chosen()


def _kinds(tensors: list[Any]) -> Hashable:
    """The kinds of arguments on which kernels and gradients depend."""
    places: dict[int, int] = {}
    return tuple(
        (
            t.shape, t.dtype, t.strides, t.offset, t.storage.nbytes, id(t.device), type(t),
            t.grad_meta is not None
            and (t.grad_meta.requires_grad, t.grad_meta.grad is not None, bool(t.grad_meta.hooks)),
            places.setdefault(id(t.storage), position),
        )
        for position, t in enumerate(tensors)
    )  # fmt: skip


@overload
def compile(
    function: None = None,
    mode: Mode | None = "default",
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: object = None,
    options: object = None,
    disable: bool = False,
) -> Callable[[Callable[P, T]], Compiled[P, T]]: ...


@overload
def compile(
    function: Callable[P, T],
    mode: Mode | None = "default",
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: object = None,
    options: object = None,
    disable: bool = False,
) -> Compiled[P, T]: ...


def compile(
    function: Callable[P, T] | None = None,
    mode: Mode | None = "default",
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: object = None,
    options: object = None,
    disable: bool = False,
) -> Any:
    """Compile a function of tensors, a module, or a whole training step.

    The first calls run as always and are traced. From then on calls with arguments of the same shapes,
    strides and dtypes replay one recorded submission, with fewer kernels and planned memory. What the
    function depends on besides (modules and their modes, options of optimizers, closures, globals) is
    looked at before each replay; where it has changed, the call runs as always and is traced anew. A call
    that cannot be replayed, as it reads elements on the host or changes objects of Python, runs as always
    after one :class:`CompileWarning` that names the line. Gradients flow from results to arguments and to
    tensors that the function sees, not from one result to another.

    Args:
        function: takes and returns tensors, or tuples, lists and dicts of them, beside plain values. Without
            one the result is a decorator.
        mode: ``"default"`` or None; ``"reduce-overhead"`` prefers convolutions of one kernel, for networks
            whose launches take longer than what they compute; ``"max-autotune"`` measures the kernels for
            the shapes at hand in the first call, for at most a minute.
        fullgraph, dynamic, options: are taken for PyTorch's sake and change nothing: each combination of
            shapes is compiled by itself, and what cannot be runs as always.
        backend: another compiler: ``"iree"`` for the results of a module, within ``dl.no_grad()``
            (:class:`~dl4all.onnx.iree_compiler.IreeModule`), or one that a package brings as an entry point
            of the group ``dl4all.compilers``. Names of PyTorch's compilers change nothing.
        disable: return the function itself; so does ``backend="eager"``.

    Returns:
        A callable that computes the same. ``reset()`` frees what it has compiled.

    Raises:
        ArgumentError: it cannot be called, or there is no such mode or compiler.

    Example:
        >>> import dl4all as dl
        >>> @dl.compile
        ... def f(x):
        ...     return (x * 2 + 1).relu()
        >>> [f(dl.tensor([1.0, -2.0])).tolist() for _ in range(4)][-1]
        [3.0, 0.0]
    """
    mode = mode or "default"
    if mode not in MODES:
        raise ArgumentError(f"[compile] expected a mode of {', '.join(MODES)}, got {mode!r}")
    if function is None:
        return functools.partial(compile, mode=mode, backend=backend, disable=disable)
    if not callable(function):
        raise ArgumentError(f"[compile] expected a function or a module, got {type(function).__name__}")
    if disable or backend == "eager" or isinstance(function, Compiled):
        return function
    if isinstance(backend, str) and backend not in OF_PYTORCH:
        return _compiler(backend)(function)
    return Compiled(function, mode)


def _compiler(name: str) -> Callable[[Any], Any]:
    """Another compiler.

    Raises:
        ArgumentError: there is none of this name.
    """
    found = {entry.name: entry for entry in (*entry_points(group=COMPILERS), *BUILT_IN)}
    if name not in found:
        known = ", ".join(repr(one) for one in (*sorted(found), "eager", *OF_PYTORCH))
        raise ArgumentError(f"[compile] there is no compiler {name!r}; there are {known}")
    made: Callable[[Any], Any] = found[name].load()
    return made
