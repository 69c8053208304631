"""Methods of tensors that are functions of ``dl4all.ops``; their types are in the stub, methods.pyi."""

from __future__ import annotations

from dl4all import ops
from dl4all.ops.core.arguments.numpy_names import with_numpy_names
from dl4all.ops.core.exports import exported
from dl4all.ops.core.tensor_base import TensorBase


class Methods(TensorBase):
    """The functions that are declared with ``@export("Tensor")`` or, to change the tensor, ``"Tensor_"``."""

    __slots__ = ()


for _name, _one in exported("Tensor"):
    setattr(Methods, _name, with_numpy_names(_one.function))
for _name, _one in exported("Tensor_"):
    setattr(Methods, f"{_name}_", ops.in_place(_one.function))
