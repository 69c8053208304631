"""``Variable``, which scripts from before PyTorch 0.4 wrap around each tensor."""

from __future__ import annotations

import warnings
from typing import Any

from dl4all.errors import DTypeError
from dl4all.ops.core import tape
from dl4all.ops.core.tensor_base import TensorBase


class _Tensors(type):
    """Calls give tensors, and every tensor is an instance."""

    def __call__(cls, data: Any, requires_grad: bool = False, volatile: bool = False) -> Any:
        if not isinstance(data, TensorBase):
            raise DTypeError(
                f"[Variable] expected a tensor, got {type(data).__name__}; make one with dl.tensor(...)"
            )
        if volatile:
            warnings.warn(
                "[Variable] volatile has no effect, as in PyTorch since 0.4: use dl.no_grad()", stacklevel=2
            )
        result: Any = tape.alias(data)
        return result.requires_grad_() if requires_grad else result

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TensorBase)


class Variable(metaclass=_Tensors):
    """A tensor on the memory of another one, without its history; new code uses the tensor itself.

    Args:
        data: the tensor.
        requires_grad: whether gradients are computed for it.
        volatile: PyTorch's word for ``no_grad`` before 0.4; warns.

    Raises:
        DTypeError: `data` is no tensor.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.autograd import Variable
        >>> x = Variable(dl.tensor([2.0]), requires_grad=True)
        >>> (x * x).backward()
        >>> x.grad.tolist(), isinstance(x, Variable)
        ([4.0], True)
    """
