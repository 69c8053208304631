"""Differentiation as methods of tensors: their gradients, their place in the graph, and hooks."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from dl4all import autograd
from dl4all.errors import DTypeError, GradientError
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import FLOATING
from dl4all.ops.core.removable_handle import RemovableHandle, add_hook
from dl4all.ops.core.tensor_base import TensorBase

if TYPE_CHECKING:
    from dl4all.tensor.tensor import Tensor  # of which the class below is a part

T = TypeVar("T", bound="Gradients")


class Gradients(TensorBase):
    """``grad``, ``requires_grad``, ``backward``, ``detach`` and what else belongs to them."""

    __slots__ = ()

    @property
    def requires_grad(self) -> bool:
        """Whether ``backward`` computes gradients of this tensor, or of tensors that it was computed from.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, requires_grad=True).requires_grad
            True
        """
        return self.grad_meta is not None and self.grad_meta.requires_grad

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        self.requires_grad_(requires_grad)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Set whether gradients of this tensor are required; returns the tensor.

        Raises:
            GradientError: the dtype is not a float dtype, or an op made the tensor.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2).requires_grad_().requires_grad
            True
        """
        if requires_grad and self.dtype not in FLOATING:
            raise GradientError(f"[requires_grad] only floats have gradients, not {self.dtype}")
        if not self.is_leaf and not requires_grad:
            raise GradientError(
                "[requires_grad] an op made this tensor; use .detach() for one without gradients"
            )
        if self.grad_meta is None:
            self.grad_meta = tape.GradMeta()
        self.grad_meta.requires_grad = requires_grad
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether the tensor is not the result of a recorded op.

        Example:
            >>> import dl4all as dl
            >>> x = dl.tensor([2.0], requires_grad=True)
            >>> x.is_leaf, (x * x).is_leaf
            (True, False)
        """
        return self.grad_meta is None or self.grad_meta.node is None

    @property
    def grad_fn(self) -> tape.GradientNode | None:
        """The recorded op whose result this tensor is; None for a leaf.

        Example:
            >>> import dl4all as dl
            >>> x = dl.tensor([2.0], requires_grad=True)
            >>> x.grad_fn is None, (x * x).grad_fn is None
            (True, False)
        """
        return None if self.grad_meta is None else self.grad_meta.node

    @property
    def grad(self) -> Any:
        """The gradient that ``backward`` has accumulated, a tensor; None before.

        Example:
            >>> import dl4all as dl
            >>> x = dl.tensor([2.0], requires_grad=True)
            >>> (x * x).sum().backward()
            >>> x.grad.tolist()
            [4.0]
        """
        return None if self.grad_meta is None else self.grad_meta.grad

    @grad.setter
    def grad(self, gradient: Any) -> None:
        if gradient is not None and (gradient.shape, gradient.dtype) != (self.shape, self.dtype):
            raise GradientError(
                f"[grad] expected shape {self.shape} and {self.dtype}, "
                f"got {gradient.shape} and {gradient.dtype}"
            )
        if self.grad_meta is None:
            self.grad_meta = tape.GradMeta()
        self.grad_meta.grad = gradient

    def backward(
        self, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False
    ) -> None:
        """Compute the gradients of the graph's leaves, and add them to their ``grad``.

        Several threads may do so for graphs with common leaves: each sum is whole, in whatever order.

        Args:
            gradient: the weight of each element, of this tensor's shape; by default 1, for a single element.
            retain_graph: keep the graph, so that ``backward`` can be called again.
            create_graph: record the computation of the gradients, so that they can be differentiated.

        Raises:
            GradientError: there is no graph, it was freed, or a tensor that it needs was changed in place.

        Example:
            >>> import dl4all as dl
            >>> x = dl.tensor([1.0, 2.0], device="cpu").requires_grad_()
            >>> (x * x).backward(dl.tensor([1.0, 1.0], device="cpu"))
            >>> x.grad.tolist()
            [2.0, 4.0]
        """
        autograd.backward([self], None if gradient is None else [gradient], retain_graph, create_graph)

    def detach(self) -> Tensor:
        """A tensor with the same memory that is no part of the graph.

        Example:
            >>> import dl4all as dl
            >>> x = dl.tensor([2.0], requires_grad=True)
            >>> (x * x).detach().requires_grad
            False
        """
        detached: Tensor = tape.alias(self)  # type: ignore[assignment]
        return detached

    def detach_(self: T) -> T:
        """Forget the tensor's history, so that it is a leaf without gradients; returns the tensor.

        Raises:
            GradientError: it is a view, whose elements belong to another tensor's history.

        Example:
            >>> import dl4all as dl
            >>> y = dl.ones(2, requires_grad=True) * 3
            >>> y.detach_().requires_grad
            False
        """
        if self.view_of is not None and self.grad_meta is not None and self.grad_meta.node is not None:
            raise GradientError("[detach_] a view cannot be detached in place; use .detach()")
        self.grad_meta = None
        return self

    @property
    def data(self) -> Tensor:
        """The tensor without its history, on the same memory.

        Assignment leaves gradients alone: ``p.data = x`` gives a parameter the memory, shape, dtype and
        device of `x`.

        Example:
            >>> import dl4all as dl
            >>> w = dl.ones(2, requires_grad=True)
            >>> w.data.mul_(3)
            tensor([3., 3.])
            >>> w.data = dl.zeros(3)
            >>> w.tolist(), w.requires_grad
            ([0.0, 0.0, 0.0], True)
        """
        return self.detach()

    @data.setter
    def data(self, source: TensorBase) -> None:
        if not isinstance(source, TensorBase):
            raise DTypeError(f"[data] expected a tensor, got {type(source).__name__}")
        if self.requires_grad and source.dtype not in FLOATING:
            raise GradientError(f"[data] the tensor requires gradients, and {source.dtype} has none")
        self.storage, self.shape, self.strides = source.storage, source.shape, source.strides
        self.dtype, self.device, self.offset = source.dtype, source.device, source.offset

    def retain_grad(self) -> None:
        """Let ``backward`` set ``grad`` of a tensor that is no leaf, too.

        Raises:
            GradientError: the tensor does not require gradients.

        Example:
            >>> import dl4all as dl
            >>> x = dl.tensor([1.0], requires_grad=True)
            >>> y = x * 2
            >>> y.retain_grad()
            >>> (y * y).sum().backward()
            >>> y.grad.tolist()
            [4.0]
        """
        if self.grad_meta is None or not self.grad_meta.requires_grad:
            raise GradientError("[retain_grad] this tensor does not require gradients")
        if self.grad_meta.node is not None:
            self.grad_meta.node.retained[self.grad_meta.output] = weakref.ref(self)

    def register_hook(self, hook: tape.Hook) -> RemovableHandle:
        """Call `hook` with the gradient when it is complete; a result other than None replaces the gradient.

        Returns:
            A handle whose ``remove()`` removes the hook.

        Raises:
            GradientError: the tensor does not require gradients.

        Example:
            >>> import dl4all as dl
            >>> x = dl.tensor([1.0, 2.0], requires_grad=True)
            >>> handle = x.register_hook(lambda gradient: gradient * 10)
            >>> (x * 3).sum().backward()
            >>> x.grad.tolist()
            [30.0, 30.0]
            >>> handle.remove()
        """
        record = self.grad_meta
        if record is None or not record.requires_grad:
            raise GradientError("[register_hook] this tensor does not require gradients")
        hooks = record.hooks if record.node is None else record.node.hooks.setdefault(record.output, {})
        return add_hook(hooks, hook)
