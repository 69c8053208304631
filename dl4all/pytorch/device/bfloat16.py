"""bfloat16 on ``dlall``: computed with as float32 on the device, and rounded at the end of each op.

dl4all has no such dtype. A kernel that meets one refuses, and the call comes here: operands are widened, the
same op computes in float32, and its results are rounded to what PyTorch says that their dtype is.
"""

from __future__ import annotations

from typing import Any

import torch

from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.bfloat16 import bfloat16_to_float32, float32_to_bfloat16
from dl4all.ops.memory.copy import overwrite
from dl4all.pytorch.device.devices import NAME, is_here
from dl4all.pytorch.device.dispatch.schemas import SchemaPlan, plan, tensors_in
from dl4all.pytorch.device.storage import memory

BFLOAT16 = torch.bfloat16

_result_dtypes: dict[Any, tuple[torch.dtype | None, ...]] = {}
"""By op and what decides on them; PyTorch's "meta" device, which has no elements, tells."""


def is_meant(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call has bfloat16 operands on the device, or asks for such results."""
    return any(
        value is BFLOAT16 or (is_here(value) and value.dtype == BFLOAT16)
        for value in (*tensors_in(args), *tensors_in(kwargs.values()), *args, *kwargs.values())
    )


def widened(value: torch.Tensor) -> TensorBase:
    """dl4all's float32 tensor of the elements of a bfloat16 one, laid out in memory as they are."""
    count = memory.extent(value.shape, value.stride())
    patterns = memory.carrier(value.as_strided((count,), (1,), value.storage_offset()))
    flat = bfloat16_to_float32(patterns)
    view: TensorBase = flat.strided_view(tuple(value.shape), value.stride(), 0)
    return view


def write(target: torch.Tensor, source: TensorBase) -> None:
    """Round float32 into a bfloat16 tensor."""
    overwrite(memory.carrier(target), float32_to_bfloat16(source))


def narrowed(value: torch.Tensor) -> torch.Tensor:
    """A float32 tensor as bfloat16, with the same strides if they leave no gaps."""
    if not memory.is_dense(value.shape, value.stride()):
        value = value.contiguous()
    flat = memory.tensor(value.as_strided((value.numel(),), (1,), value.storage_offset()))
    patterns = float32_to_bfloat16(flat)
    index = value.get_device()
    storage = memory.torch_storage(patterns.storage, index, value.numel() * 2)
    return memory.over(storage, index, BFLOAT16, tuple(value.shape), value.stride())


def compute(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute an op by the kernel for float32.

    Raises:
        NotNative: PyTorch does not tell of what dtypes the results are.
    """
    known = plan(op)
    bound = dict(zip(known.arguments, args, strict=False)) | kwargs
    dtypes = _dtypes_of_results(op, known, bound)
    wide: dict[int, torch.Tensor] = {}  # of one tensor that is given twice, one copy

    def widen(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if not is_here(value) or value.dtype != BFLOAT16:
                return value
            if id(value) not in wide:
                own = widened(value)
                nbytes = own.storage.nbytes
                storage = memory.torch_storage(own.storage, value.get_device(), nbytes)
                shape, strides = tuple(value.shape), value.stride()
                wide[id(value)] = memory.over(storage, value.get_device(), torch.float32, shape, strides)
            return wide[id(value)]
        if isinstance(value, (list, tuple)):
            return type(value)(map(widen, value))
        return torch.float32 if value is BFLOAT16 else value

    given = {name: widen(value) for name, value in bound.items()}
    positional, keywords = known.call(given)
    result = op(*positional, **keywords)
    for name in known.written:
        for target, source in zip(tensors_in([bound.get(name)]), tensors_in([given.get(name)]), strict=True):
            if target is not source:
                if target.shape != source.shape:
                    target.resize_(source.shape)
                write(target, memory.tensor(source))
    if not known.returned:
        return None
    results = (result,) if len(known.returned) == 1 else result
    moved = [
        _of_dtype(one, dtype) if source is None else bound[source]
        for one, source, dtype in zip(results, known.returned, dtypes, strict=True)
    ]
    return moved[0] if len(moved) == 1 else tuple(moved)


def _of_dtype(value: Any, dtype: torch.dtype | None) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_of_dtype(one, dtype) for one in value)
    if not isinstance(value, torch.Tensor) or dtype is None or value.dtype == dtype:
        return value
    if not value.is_floating_point():
        return value
    return narrowed(value) if dtype == BFLOAT16 and value.dtype == torch.float32 else value.to(dtype)


def _dtypes_of_results(op: Any, known: SchemaPlan, bound: dict[str, Any]) -> tuple[torch.dtype | None, ...]:
    """The dtypes of new results."""
    if all(source is not None for source in known.returned):
        return (None,) * len(known.returned)
    key = (op, *((name, _kind(value)) for name, value in bound.items()))
    if key not in _result_dtypes:
        given = {name: _as_meta(value) for name, value in bound.items()}
        if "device" in known.arguments and "device" not in known.tensors:
            given["device"] = torch.device("meta")
        positional, keywords = known.call(given)
        try:
            result = op(*positional, **keywords)
        except (NotImplementedError, RuntimeError) as error:  # not all ops have that
            floats = {one.dtype for one in tensors_in(bound.values()) if one.is_floating_point()}
            if floats != {BFLOAT16}:
                raise memory.NotNative(f"the dtype of a result is not known: {error}") from None
            _result_dtypes[key] = (BFLOAT16,) * len(known.returned)
            return _result_dtypes[key]
        results = (result,) if len(known.returned) == 1 else result
        _result_dtypes[key] = tuple(next((t.dtype for t in tensors_in([one])), None) for one in results)
    return _result_dtypes[key]


def _kind(value: Any) -> Any:
    """The part of an argument that decides on the dtypes of results."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.dim() == 0
    if isinstance(value, (list, tuple)):
        return tuple(_kind(one) for one in value)
    return value if isinstance(value, (bool, torch.dtype, type(None))) else type(value)


def _as_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return type(value)(map(_as_meta, value))
    return torch.device("meta") if isinstance(value, torch.device) and value.type == NAME else value
