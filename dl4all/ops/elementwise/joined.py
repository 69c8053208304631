"""Elementwise ops of many small tensors, where one dispatch computes several of them.

See :mod:`dl4all.ops.core.kernels.multi_tensor`. PyTorch's optimizers call their ops so, as
``torch._foreach_add_``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from dl4all.errors import PipelineError, TooLargeError
from dl4all.ops.core.expressions.expression import print_glsl
from dl4all.ops.core.kernels.launch import pack, shader
from dl4all.ops.core.kernels.multi_tensor import BATCH_PUSH, Role, recent_plans
from dl4all.ops.core.op import SHARED
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.elementwise.arithmetic import add, addcdiv, addcmul, lerp, mul, neg, sub, true_divide
from dl4all.ops.elementwise.comparison import maximum, minimum
from dl4all.ops.elementwise.declare import Elementwise
from dl4all.ops.elementwise.rounding import abs, sign
from dl4all.ops.elementwise.transcendental import reciprocal, sqrt
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device.programs import Launch

Form = tuple[tuple[bool, ...], bool]
"""Which operands are tensors, and whether the first is overwritten."""


def _form_shader(op: Elementwise[...], tensors: tuple[bool, ...], in_place: bool) -> Shader:
    expression = op.expression("float32")
    assert expression is not None
    names = ("x",) if len(tensors) == 1 else ("a", "b", "c")[: len(tensors)]
    defines: dict[str, Any] = {
        f"OP({','.join(names)})": f"({print_glsl(expression)})",
        "PARAMS": "".join(f"float {name};" for name in op.arguments),
        "OPERANDS": len(tensors),
    }
    binding = itertools.count(1)
    for letter, is_tensor in zip("ABC", tensors, strict=False):
        if is_tensor and not (in_place and letter == "A"):
            defines[f"{letter}_BINDING"] = next(binding)
    if in_place:
        defines["IN_PLACE"] = 1
    return shader("optim/joined.comp", Y_BINDING=next(binding), **defines)


UNARY = [(True,)]
BINARY = [(True, True), (True, False)]
TERNARY = [(True, True, True)]
OPS: list[tuple[Any, Sequence[tuple[bool, ...]]]] = [
    *((op, UNARY) for op in (sqrt, neg, abs, reciprocal, sign)),
    *((op, BINARY) for op in (add, sub, mul, true_divide, maximum, minimum)),
    *((op, TERNARY) for op in (addcmul, addcdiv)),
    (lerp, [*TERNARY, (True, True, False)]),
]
SHADERS: dict[tuple[str, Form], Shader] = {
    (op.name, (tensors, in_place)): _form_shader(op, tensors, in_place)
    for op, forms in OPS
    for tensors in forms
    for in_place in (False, True)
    if in_place or len(tensors) < 3  # every device binds four buffers
}
SHARED.extend(SHADERS.values())


def is_joined(op: Any, operands: Sequence[Any], *, in_place: bool) -> bool:
    """Whether there is a kernel that computes an op of many such operands.

    >>> import dl4all as dl
    >>> is_joined(dl.ops.mul, (dl.tensor([1.0]), 2.0), in_place=True)
    True
    """
    form = (tuple(isinstance(one, TensorBase) for one in operands), in_place)
    return isinstance(op, Elementwise) and (op.name, form) in SHADERS


def run_joined(
    op: Elementwise[...],
    jobs: Sequence[tuple[Any, ...]],
    targets: Sequence[TensorBase],
    arguments: dict[str, Any] | None = None,
) -> list[int]:
    """Compute an op of the operands of each job into its target, in few dispatches.

    Nothing is recorded for gradients.

    Args:
        op: one for which :func:`is_joined` holds.
        jobs: operands: contiguous tensors of float32 on one device, as many elements as the target has; or
            numbers, at the same places in all jobs and the same ones.
        targets: of each job, contiguous: its first operand, or no operand, for all jobs alike.
        arguments: of the op.

    Returns:
        The numbers of the jobs that were not computed: with so few or so scattered tensors that nothing is
        saved, or without a kernel on this device.

    >>> import dl4all as dl
    >>> x = dl.tensor([1.0, 2.0], device="cpu")
    >>> run_joined(dl.ops.mul, [(x, 2.0)], [x])
    [0]
    """
    first, device = jobs[0], targets[0].device
    every = list(range(len(jobs)))
    if device.is_host:
        return every
    in_place = first[0] is targets[0]
    form = (tuple(isinstance(one, TensorBase) for one in first), in_place)
    code = SHADERS[op.name, form]
    read = [k for k, is_tensor in enumerate(form[0]) if is_tensor and not (in_place and k == 0)]
    roles = [*(Role(written=False) for _ in read), Role(written=True)]
    tensors = [(*(job[k] for k in read), target) for job, target in zip(jobs, targets, strict=True)]
    plan = recent_plans(device).plan((op.name, form), tensors, roles)
    numbers = [0.0 if isinstance(one, TensorBase) else float(one) for one in first]
    numbers += [0.0] * (3 - len(numbers))
    given = op.bind(first, arguments or {})[1]
    values = [float(given[name]) for name in op.arguments]
    left = list(plan.alone)
    for batch in plan.batches:
        push = BATCH_PUSH.pack(*batch.rows) + pack(*numbers, *values)
        try:
            device.launch(Launch(code, (batch.groups, 1, 1), push), batch.table, *batch.spans)
        except (PipelineError, TooLargeError):
            left += batch.jobs
            continue
        for number in batch.jobs:
            targets[number].storage.version += 1
    return sorted(left)
