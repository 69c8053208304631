"""Mixed precision: which dtype the operands of an op become within a block of ``dl.autocast``.

Each op and function says by a policy what it wants (:func:`dl4all.ops.core.exports.export`): products of
matrices and convolutions the block's dtype, which takes half the bytes; sums of many terms, losses and
functions that leave the range of float16 float32; ops of several operands the widest of their dtypes. Others
compute in what they are given. The lists are PyTorch's (aten/src/ATen/autocast_mode.h).

Casts are ops with gradients, so that parameters keep float32 and get gradients of it. Those of parameters are
kept until the outermost block ends.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from dl4all.errors import DTypeError
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import FLOAT32, FLOATS, HALVES
from dl4all.ops.core.primitives import primitives
from dl4all.ops.core.tensor_base import TensorBase

Policy = Literal["lower", "float32", "float32 result", "widest", "unsafe"]

blocks: list[object] = []
"""One entry for each block that a thread is in: empty, as almost always, no op asks any further."""


@contextlib.contextmanager
def within(dtypes: Mapping[str, np.dtype[Any]], caches: bool = True) -> Iterator[None]:
    """Have ops of this thread compute in mixed precision, by the type of device, in the ``with`` block."""
    kept = (tape.state.casts or {}) if caches else None
    blocks.append(dtypes)
    try:
        with tape.changed(autocast=dtypes, casts=kept):
            yield
    finally:
        blocks.pop()


def suspended() -> contextlib.AbstractContextManager[None]:
    """Ops of this thread compute in what they are given in the ``with`` block, as those of gradients do."""
    return tape.changed(autocast={}) if blocks else contextlib.nullcontext()


def without_casts() -> contextlib.AbstractContextManager[None]:
    """Begin the ``with`` block without what was cast before, and forget at its end what was cast in it."""
    return tape.changed(casts={}) if blocks and tape.state.casts is not None else contextlib.nullcontext()


def settings() -> tuple[tuple[str, str], ...]:
    """The dtypes of this thread's blocks, for keys of what is computed in them."""
    return tuple(sorted((name, dtype.name) for name, dtype in tape.state.autocast.items())) if blocks else ()


def lower_dtype(value: Any) -> np.dtype[Any] | None:
    """The block's dtype for a tensor that takes part in mixed precision; None for anything else."""
    if isinstance(value, TensorBase) and value.dtype in FLOATS:
        return tape.state.autocast.get(value.device.name.partition(":")[0])
    return None


def cast_operands(
    name: str, policy: Policy, operands: Sequence[Any], arguments: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The operands and arguments as a policy has them.

    Raises:
        DTypeError: the op is meaningless in the lower precision.
    """
    chosen = next((dtype for dtype in map(lower_dtype, operands) if dtype is not None), None)
    if chosen is None:
        return list(operands), arguments
    if policy == "unsafe":
        raise DTypeError(
            f"[{name}] has no form for mixed precision, as its logarithms leave the range of 16 bits; use "
            "binary_cross_entropy_with_logits (nn.BCEWithLogitsLoss), or a block autocast(..., enabled=False)"
        )
    if policy == "float32 result":
        if arguments.get("dtype") is None and any(
            isinstance(o, TensorBase) and o.dtype in HALVES for o in operands
        ):
            arguments = {**arguments, "dtype": "float32"}
        return list(operands), arguments
    if policy == "widest":
        dtypes = {o.dtype for o in operands if lower_dtype(o) is not None}
        if len(dtypes) < 2:
            return list(operands), arguments
        chosen = FLOAT32
    elif policy == "float32":
        chosen = FLOAT32
    return [_as_dtype(o, chosen) for o in operands], arguments


def _as_dtype(value: Any, dtype: np.dtype[Any]) -> Any:
    if lower_dtype(value) is None or value.dtype == dtype:
        return value
    meta, casts = value.grad_meta, tape.state.casts
    if casts is None or meta is None or meta.node is not None or not meta.requires_grad:
        return primitives.cast(value, dtype.name)
    key = id(value), dtype, tape.state.enabled  # a parameter, which is used in each layer's next call, too
    kept = casts.get(key)
    if kept is None or kept[0] is not value or kept[1] != value.storage.version:
        kept = casts[key] = (value, value.storage.version, primitives.cast(value, dtype.name))
    return kept[2]


def following(policy: Policy, function: Any) -> Any:
    """The function, whose tensors become what a policy says within a block."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if not (blocks and tape.state.autocast):
            return function(*args, **kwargs)
        names = [name for name, value in kwargs.items() if isinstance(value, TensorBase)]
        tensors = (*args, *(kwargs[name] for name in names))
        operands, rest = cast_operands(function.__name__, policy, tensors, kwargs)
        given = dict(zip(names, operands[len(args) :], strict=True))
        active, tape.state.autocast = tape.state.autocast, {}  # its parts compute in what was chosen for it
        try:
            return function(*operands[: len(args)], **{**rest, **given})
        finally:
            tape.state.autocast = active

    return called
