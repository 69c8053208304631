"""Functions with a gradient that the user defines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from dl4all.errors import GradientError
from dl4all.ops.core import tape
from dl4all.ops.core.tensor_base import TensorBase


class Context:
    """Passes values from ``forward`` of a :class:`Function` to ``backward``; any attribute may be set."""

    def __init__(self) -> None:
        self._to_save: tuple[TensorBase | None, ...] = ()
        self.saved_tensors: tuple[TensorBase | None, ...] = ()
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: TensorBase | None) -> None:
        """Keep inputs or outputs; in ``backward`` they are ``saved_tensors``."""
        self._to_save = tensors


class Function:
    """An op with its own gradient, called by ``apply``.

    A subclass defines two static methods. ``forward(ctx, *inputs)`` returns a tensor or a tuple of tensors.
    ``backward(ctx, *gradients)`` takes the gradient of each output and returns the gradient of each input,
    None for an input without one. The results of ``backward`` can be differentiated again.

    Example:
        >>> import dl4all as dl
        >>> class Square(dl.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x
        ...     @staticmethod
        ...     def backward(ctx, g):
        ...         (x,) = ctx.saved_tensors
        ...         return g * x * 2
        >>> x = dl.tensor([3.0], device="cpu").requires_grad_()
        >>> Square.apply(x).backward()
        >>> x.grad.tolist()
        [6.0]
    """

    @staticmethod
    def forward(ctx: Context, *inputs: Any) -> Any:
        """Compute the outputs."""
        raise NotImplementedError("a Function defines forward(ctx, *inputs) as a static method")

    @staticmethod
    def backward(ctx: Context, *gradients: Any) -> Any:
        """Compute the inputs' gradients."""
        raise NotImplementedError("a Function defines backward(ctx, *gradients) as a static method")

    @classmethod
    def apply(cls, *inputs: Any) -> Any:
        """Run ``forward`` and add it to the graph."""
        ctx = Context()
        ctx.needs_input_grad = tuple(map(tape.wants_gradient, inputs))
        with tape.gradients(False):
            result = cls.forward(ctx, *inputs)
        outputs = result if isinstance(result, tuple) else (result,)
        # An input that is returned as an output needs gradient metadata of its own.
        outputs = tuple(tape.alias(o) if any(o is i for i in inputs) else o for o in outputs)
        to_save, ctx._to_save = ctx._to_save, ()

        def backward(
            grads: Sequence[Any], saved: tuple[TensorBase, ...], needs: tuple[bool, ...]
        ) -> Sequence[Any]:
            ctx.saved_tensors = saved
            try:
                returned = cls.backward(ctx, *grads)
            finally:
                ctx.saved_tensors = ()
            gradients = returned if isinstance(returned, tuple) else (returned,)
            if len(gradients) != input_count:
                raise GradientError(
                    f"[{cls.__name__}] backward must return a gradient for each of {input_count} inputs, "
                    f"got {len(gradients)}"
                )
            return gradients

        input_count = len(inputs)  # the function above must not hold the inputs themselves
        tape.add_node(cls.__name__, inputs, outputs, backward, to_save)
        return outputs if isinstance(result, tuple) else outputs[0]


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Let a Function's ``backward`` compute without a history: a gradient of its results is refused.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.autograd.function import once_differentiable
        >>> class Double(dl.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x * 2
        ...     @staticmethod
        ...     @once_differentiable
        ...     def backward(ctx, g):
        ...         return g * 2
        >>> x = dl.tensor([3.0]).requires_grad_()
        >>> Double.apply(x).backward()
        >>> x.grad.tolist()
        [2.0]
    """

    @functools.wraps(fn)
    def backward(ctx: Context, *gradients: Any) -> Any:
        with tape.gradients(False):
            returned = fn(ctx, *gradients)
        several = isinstance(returned, tuple)
        results = [
            tape.alias(result) if isinstance(result, TensorBase) else result
            for result in (returned if several else (returned,))
        ]
        tensors = [result for result in results if isinstance(result, TensorBase)]
        tape.add_node("once_differentiable", gradients, tensors, refuse)
        return tuple(results) if several else results[0]

    def refuse(*arguments: Any) -> Any:
        raise GradientError(
            f"[{fn.__qualname__}] is declared with once_differentiable: its results have no gradient"
        )

    return backward
