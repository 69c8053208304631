"""Transforms of functions, with the names of ``torch.func``: gradients, Jacobians, and maps over samples.

Arguments and results may be nested tuples, lists and dicts of tensors. Transforms nest: ``vmap(grad(f))``
gives each sample's gradient, ``grad(grad(f))`` the second derivative.

Source: https://docs.pytorch.org/docs/stable/func.api.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dl4all.autograd import backward_pass, enable_grad, functional
from dl4all.autograd.vectorizing_map import vmap
from dl4all.errors import ArgumentError, ShapeError
from dl4all.graph.tracing.structure import Build, Opaque, rebuilder
from dl4all.nn.module import Module
from dl4all.nn.utils.stateless import functional_call
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.indexing.concatenation import stack
from dl4all.ops.memory.parts import select
from dl4all.ops.memory.views import view
from dl4all.tensor.tensor import Tensor

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "stack_module_state",
    "vjp",
    "vmap",
]

Function = Callable[..., Any]
Argnums = int | tuple[int, ...]


def grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """The function that computes the gradient of `func`.

    Args:
        func: returns a tensor of one element; with `has_aux` a pair of it and something else.
        argnums: which argument the gradient is taken of, or a tuple of several.
        has_aux: the new function returns the pair of the gradient and what else `func` returned.

    Returns:
        A function of the same arguments, whose result has the structure and the shapes of the argument.

    Raises:
        ArgumentError: an argument that is differentiated holds something that is neither a tensor nor a
            container, or `func` does not return what it should.
        ShapeError: the result has more than one element.

    Example:
        >>> import dl4all as dl
        >>> cube = lambda x: x * x * x
        >>> x = dl.tensor(2.0)
        >>> dl.func.grad(cube)(x).item(), dl.func.grad(dl.func.grad(cube))(x).item()
        (12.0, 12.0)
    """
    both = grad_and_value(func, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        gradients, value = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return gradient


def grad_and_value(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """As :func:`grad`; the new function returns the pair of the gradient and the result of `func`.

    Raises:
        ArgumentError, ShapeError: see :func:`grad`.

    Example:
        >>> import dl4all as dl
        >>> gradient, value = dl.func.grad_and_value(lambda x: (x * x).sum())(dl.tensor([1.0, 2.0]))
        >>> gradient.tolist(), value.item()
        ([2.0, 4.0], 5.0)
    """

    def gradient_and_value(*args: Any, **kwargs: Any) -> Any:
        chosen = _chosen("grad", args, argnums)
        call = _TransformCall("grad", func, args, kwargs, chosen, has_aux)
        value = call.tensor_result()
        if value.numel() != 1:
            raise ShapeError(f"[grad] the function must return one element, got shape {value.shape}")
        gradients = call.rebuilt(call.gradients(value))
        result = call.outer(value)
        return gradients[0] if isinstance(argnums, int) else gradients, (
            (result, call.aux) if has_aux else result
        )

    return gradient_and_value


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """The result of `func`, and the function that multiplies a vector with its Jacobian.

    Args:
        func: returns a tensor or a structure of tensors; with `has_aux` a pair of it and something else.
        primals: its arguments.

    Returns:
        The result, and a function of cotangents (of the result's structure) that returns a tuple with one
        entry for each primal; with `has_aux` what else `func` returned comes third.

    Example:
        >>> import dl4all as dl
        >>> y, back = dl.func.vjp(lambda x: x * x, dl.tensor([1.0, 2.0]))
        >>> back(dl.tensor([1.0, 10.0]))[0].tolist()
        [2.0, 40.0]
    """
    call = _TransformCall("vjp", func, primals, {}, tuple(range(len(primals))), has_aux)
    outputs: list[Any] = []
    build = _rebuilder("vjp", call.value, outputs)

    def back(*cotangents: Any) -> tuple[Any, ...]:
        weights: list[Any] = []
        _rebuilder("vjp", cotangents[0] if len(cotangents) == 1 else cotangents, weights)
        if [w.shape for w in weights] != [y.shape for y in outputs]:
            raise ShapeError(
                f"[vjp] expected cotangents of shapes {[y.shape for y in outputs]}, "
                f"got {[w.shape for w in weights]}"
            )
        return call.rebuilt(call.gradients(outputs, weights, retain_graph=True))

    result = build([call.outer(y) for y in outputs])
    return (result, back, call.aux) if has_aux else (result, back)


def jvp(func: Function, primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False) -> Any:
    """The result of `func`, and how it changes along the tangents: the Jacobian times a vector.

    It takes two passes backward: see :func:`dl4all.autograd.jvp`.

    Args:
        func: returns a tensor; with `has_aux` a pair of it and something else.
        primals: its arguments, tensors.
        tangents: directions, of the primals' shapes.

    Example:
        >>> import dl4all as dl
        >>> y, change = dl.func.jvp(lambda x: x * x, (dl.tensor([1.0, 2.0]),), (dl.tensor([1.0, 10.0]),))
        >>> change.tolist()
        [2.0, 40.0]
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError("[jvp] expected a tuple of primals and a tuple of tangents")
    aux: list[Any] = []

    def plain(*inputs: Any) -> Any:
        result, other = _split(func(*inputs), "jvp", has_aux)
        aux.append(other)
        return result

    again = any(tensor.requires_grad for tensor in primals)
    result, change = functional.jvp(plain, tuple(primals), tuple(tangents), create_graph=again)
    return (result, change, aux[-1]) if has_aux else (result, change)


def linearize(func: Function, *primals: Any) -> tuple[Any, Function]:
    """The result of `func`, and the function of tangents that computes how the result changes along them.

    Example:
        >>> import dl4all as dl
        >>> y, change = dl.func.linearize(lambda x: x * x, dl.tensor([1.0, 2.0]))
        >>> y.tolist(), change(dl.tensor([1.0, 10.0])).tolist()
        ([1.0, 4.0], [2.0, 40.0])
    """
    return func(*primals), lambda *tangents: jvp(func, primals, tangents)[1]


def jacrev(
    func: Function, argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None
) -> Function:
    """The function that computes the Jacobian of `func`, by one pass backward for each element of its result.

    Args:
        func: returns a tensor or a structure of tensors; with `has_aux` a pair of it and something else.
        argnums: which argument it is differentiated by, or a tuple of several.
        has_aux: the new function returns the pair of the Jacobian and what else `func` returned.
        chunk_size: accepted; passes are made one after the other.

    Returns:
        A function whose result has, for each tensor of the result and each of the argument, a tensor of the
        result's shape followed by the argument's.

    Example:
        >>> import dl4all as dl
        >>> dl.func.jacrev(lambda x: x * x)(dl.tensor([1.0, 2.0])).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        call = _TransformCall("jacrev", func, args, kwargs, _chosen("jacrev", args, argnums), has_aux)
        outputs: list[Any] = []
        build = _rebuilder("jacrev", call.value, outputs)
        found = []
        for output in outputs:
            with enable_grad():
                flat = view(output, -1)
                elements = [select(flat, 0, i) for i in range(flat.numel())]
            rows = [call.gradients(element, retain_graph=True) for element in elements]
            columns = [
                view(stack(column), *output.shape, *leaf.shape) if rows else _zeros(leaf, output.shape)
                for column, leaf in zip(
                    zip(*rows, strict=True) if rows else call.leaves, call.leaves, strict=True
                )
            ]
            parts = call.rebuilt(columns)
            found.append(parts[0] if isinstance(argnums, int) else parts)
        result = build(found)
        return (result, call.aux) if has_aux else result

    return jacobian


def jacfwd(
    func: Function, argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Function:
    """As :func:`jacrev`, which computes it: passes go backward only here.

    Example:
        >>> import dl4all as dl
        >>> dl.func.jacfwd(lambda x: x.sum() * x)(dl.tensor([1.0, 2.0])).tolist()
        [[4.0, 1.0], [2.0, 5.0]]
    """
    return jacrev(func, argnums, has_aux=has_aux)


def hessian(func: Function, argnums: Argnums = 0) -> Function:
    """The function that computes all second derivatives of `func`: ``jacrev(jacrev(func))``.

    Example:
        >>> import dl4all as dl
        >>> dl.func.hessian(lambda x: (x * x * x).sum())(dl.tensor([1.0, 2.0])).tolist()
        [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacrev(jacrev(func, argnums), argnums)


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of several models of one kind, stacked, for ``vmap`` over the models.

    Args:
        models: of one architecture; each parameter has one shape in all of them.

    Returns:
        Two dicts of tensors with a first axis of ``len(models)``; the parameters are leaves that require
        gradients where the models' do.

    Raises:
        ArgumentError: there are no models, or they differ in class or in names.

    Example:
        >>> import dl4all as dl
        >>> models = [dl.nn.Linear(3, 2) for _ in range(4)]
        >>> parameters, buffers = dl.func.stack_module_state(models)
        >>> parameters["weight"].shape
        (4, 2, 3)
        >>> def output(parameters, x):
        ...     return dl.func.functional_call(models[0], parameters, x)
        >>> dl.vmap(output, in_dims=(0, None))(parameters, dl.randn(5, 3)).shape
        (4, 5, 2)
    """
    if not models or len({type(model) for model in models}) != 1:
        raise ArgumentError("[stack_module_state] expected models of one class, at least one")

    def stacked(states: list[dict[str, Any]], learned: bool) -> dict[str, Any]:
        if any(state.keys() != states[0].keys() for state in states):
            raise ArgumentError("[stack_module_state] the models have different parameters or buffers")
        found = {}
        for name in states[0]:
            tensors = [state[name] for state in states]
            found[name] = stack([tensor.detach() for tensor in tensors])
            if learned and tensors[0].requires_grad:
                found[name].requires_grad_()
        return found

    return (
        stacked([dict(model.named_parameters()) for model in models], True),
        stacked([dict(model.named_buffers()) for model in models], False),
    )


class _TransformCall:
    """One call of a function in which some tensors of some arguments stand for leaves of their own."""

    def __init__(
        self,
        name: str,
        func: Function,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        chosen: tuple[int, ...],
        has_aux: bool,
    ) -> None:
        inputs: list[Any] = []
        self._builds: list[tuple[Build, int, int]] = []  # with the span of tensors that each takes
        for position in chosen:
            begin = len(inputs)
            own: list[Any] = []
            build = _rebuilder(name, args[position], own)
            inputs += own
            self._builds.append((build, begin, len(inputs)))
        # Differentiable again where the argument already is: within another transform, or by the caller.
        self._again = any(tensor.requires_grad for tensor in inputs)
        with enable_grad():
            self.leaves = [
                view(tensor, *tensor.shape) if tensor.requires_grad else tensor.detach().requires_grad_()
                for tensor in inputs
            ]
            new = list(args)
            for position, part in zip(chosen, self.rebuilt(self.leaves), strict=True):
                new[position] = part
            self.value, self.aux = _split(func(*new, **kwargs), name, has_aux)
        self._name = name

    def tensor_result(self) -> Any:
        if not isinstance(self.value, TensorBase):
            kind = type(self.value).__name__
            raise ArgumentError(f"[{self._name}] the function must return a tensor, got {kind}")
        return self.value

    def gradients(self, outputs: Any, weights: Any = None, retain_graph: bool = False) -> list[Any]:
        """One for each leaf, zeros where nothing depends on it."""
        several: Iterable[tuple[Any, Any]] = [(outputs, weights)]
        if not isinstance(outputs, TensorBase):
            several = zip(outputs, weights, strict=True)
        pairs = [(y, w) for y, w in several if y.requires_grad]
        if not pairs:  # nothing depends on anything
            return [_zeros(leaf) for leaf in self.leaves]
        found = backward_pass.grad(
            [y for y, _ in pairs],
            self.leaves,
            None if weights is None else [w for _, w in pairs],
            retain_graph=retain_graph or self._again,
            create_graph=self._again,
            allow_unused=True,
        )
        return [_zeros(leaf) if g is None else g for g, leaf in zip(found, self.leaves, strict=True)]

    def rebuilt(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The chosen arguments with other tensors in them."""
        return tuple(build(tensors[begin:end]) for build, begin, end in self._builds)

    def outer(self, tensor: Any) -> Any:
        """A tensor of the result as the caller gets it."""
        return tensor if self._again else tensor.detach()


def _chosen(name: str, args: tuple[Any, ...], argnums: Argnums) -> tuple[int, ...]:
    """The positions, counted from the front.

    Raises:
        ArgumentError: there is no such argument.
    """
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not all(-len(args) <= position < len(args) for position in positions):
        raise ArgumentError(
            f"[{name}] argnums {argnums}, but the function got {len(args)} positional arguments"
        )
    return tuple(position % len(args) for position in positions)


def _split(result: Any, name: str, has_aux: bool) -> tuple[Any, Any]:
    """The result that is differentiated, and the others that the function returned."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentError(
            f"[{name}] with has_aux the function must return a pair, got {type(result).__name__}"
        )
    return result


def _rebuilder(name: str, structure: Any, tensors: list[Any]) -> Build:
    try:
        return rebuilder(structure, tensors)
    except Opaque as error:
        raise ArgumentError(f"[{name}] expected nested containers of tensors: one {error}") from None


def _zeros(leaf: Any, before: Iterable[int] = ()) -> Any:
    zeros = np.zeros((*before, *leaf.shape), leaf.dtype)
    return from_host(type(leaf).result_class, zeros, leaf.device, copy=False)
