"""Gradients of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dl4all.errors import GradientError
from dl4all.ops.core import tape
from dl4all.ops.core.tensor_base import TensorBase


class Context:
    """What a :class:`Function` hands from ``forward`` to ``backward``. Other attributes may be set freely."""

    def __init__(self) -> None:
        self._to_save: tuple[TensorBase | None, ...] = ()
        self.saved_tensors: tuple[TensorBase | None, ...] = ()
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: TensorBase | None) -> None:
        """Keep inputs or outputs; ``saved_tensors`` are they in ``backward``."""
        self._to_save = tensors


class Function:
    """An op with a gradient of its own, called by ``apply``.

    A subclass defines two static methods. ``forward(ctx, *inputs)`` returns a tensor or a tuple of them;
    ``backward(ctx, *gradients)`` takes the gradient of each and returns that of each input, None where
    there is none. What ``backward`` computes with tensors can be differentiated again.

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
        """Run ``forward`` and note how to come back."""
        ctx = Context()
        ctx.needs_input_grad = tuple(map(tape.wants_gradient, inputs))
        with tape.gradients(False):
            found = cls.forward(ctx, *inputs)
        outputs = found if isinstance(found, tuple) else (found,)
        # An input that comes out again needs a record of its own.
        outputs = tuple(tape.alias(o) if any(o is i for i in inputs) else o for o in outputs)
        to_save, ctx._to_save = ctx._to_save, ()

        def backward(
            grads: Sequence[Any], saved: tuple[TensorBase, ...], needs: tuple[bool, ...]
        ) -> Sequence[Any]:
            ctx.saved_tensors = saved
            try:
                given = cls.backward(ctx, *grads)
            finally:
                ctx.saved_tensors = ()
            gradients = given if isinstance(given, tuple) else (given,)
            if len(gradients) != len(inputs_of):
                raise GradientError(
                    f"[{cls.__name__}] backward must return a gradient for each of {len(inputs_of)} inputs, "
                    f"got {len(gradients)}"
                )
            return gradients

        inputs_of = tuple(isinstance(i, TensorBase) for i in inputs)
        tape.add_node(cls.__name__, inputs, outputs, backward, to_save)
        return outputs if isinstance(found, tuple) else outputs[0]
