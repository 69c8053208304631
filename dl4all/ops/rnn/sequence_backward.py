"""The gradient of a recurrent layer over a whole sequence, from the last time step to the first."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.ops.core.dtypes import FLOAT32
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.launch import run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, empty, example, op
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.linalg.gemm import GEMM_SHADERS
from dl4all.ops.memory.copy import copy_into, fill_with
from dl4all.ops.memory.views import contiguous
from dl4all.ops.rnn import cells, layout
from dl4all.ops.rnn.layout import SequenceProblem
from dl4all.ops.rnn.sequence import AFTER_PROJECTION, WORKGROUP, StepProduct

SEQUENCE_BACKWARD_PUSH = PushBlock(
    "rnn/sequence_backward.comp",
    "uint n, size, g_at, saved_at, before_at, gates_at, gates_h_at, hidden_at, cell_at, adds;",
)
BACKWARD = {
    layout.CELLS[mode].number: shader(
        "rnn/sequence_backward.comp", CELL=layout.CELLS[mode].number, GRADIENT=rule.glsl_backward()
    )
    for mode, rule in cells.RULES.items()
}
BACKWARD[AFTER_PROJECTION] = shader("rnn/sequence_backward.comp", CELL=AFTER_PROJECTION)


def _check(
    grad: Any,
    result: Any,
    weight: Any,
    grad_hidden: Any,
    grad_cell: Any,
    projection: Any,
    mode: str,
    sizes: tuple[int, ...],
) -> SequenceProblem:
    """The sizes of the problem.

    Raises:
        ShapeError, DTypeError, ArgumentError
    """
    name = "recurrent_sequence_backward"
    p = layout.check_problem(name, weight, projection, mode, sizes)
    layout.check_operands(
        name,
        {
            "grad": (grad, (p.rows, p.outputs)),
            "result": (result, (layout.length(layout.result_regions(p, save=True)),)),
            "weight": (weight, (p.cell.gates * p.size, p.outputs)),
            "grad_hidden": (grad_hidden, (p.batch, p.outputs)),
            "grad_cell": (grad_cell, (p.batch, p.size)),
            "projection": (projection, (p.outputs, p.size)),
        },
    )
    return p


def _infer(
    grad: TensorBase,
    result: TensorBase,
    weight: TensorBase,
    grad_hidden: TensorBase | None,
    grad_cell: TensorBase | None,
    projection: TensorBase | None,
    *,
    mode: str,
    sizes: tuple[int, ...],
    reverse: bool,
) -> Result:
    p = _check(grad, result, weight, grad_hidden, grad_cell, projection, mode, sizes)
    return (layout.length(layout.gradient_regions(p)),), grad.dtype


def _start_with(out: TensorBase, region: layout.ResultRegion, grad: TensorBase | None) -> None:
    """Put the gradient of a last state in its place, zeros without one."""
    if grad is None:
        fill_with(region.of(out), 0)
    else:
        copy_into(region.of(out), grad)


def _run(
    out: TensorBase,
    grad: TensorBase,
    result: TensorBase,
    weight: TensorBase,
    grad_hidden: TensorBase | None,
    grad_cell: TensorBase | None,
    projection: TensorBase | None,
    *,
    mode: str,
    sizes: tuple[int, ...],
    reverse: bool,
) -> None:
    p = _check(grad, result, weight, grad_hidden, grad_cell, projection, mode, sizes)
    at, before = layout.gradient_regions(p), layout.result_regions(p, save=True)
    columns, hidden = p.cell.gates * p.size, at["hidden"].start
    g, s, w = contiguous(grad), contiguous(result), contiguous(weight)
    _start_with(out, at["hidden"], grad_hidden)
    if p.cell.has_cell:
        _start_with(out, at["cell"], grad_cell)
    product = StepProduct(w, p.batch, transpose=False, adds=p.cell.separate)
    terms = at["gates_h" if p.cell.separate else "gates"]
    project, units = None, g
    if projection is not None:
        project = StepProduct(contiguous(projection), p.batch, transpose=False)
        units = empty(type(out), (p.batch, p.size), FLOAT32, out.device)
    saved = before["saved" if p.cell.saved else "outputs"]
    for start, rows in reversed(layout.time_steps(sizes, reverse=reverse)):
        if not rows:
            continue
        g_at = g.offset + start * p.outputs
        if project is not None:
            outputs_at = at["outputs"].start + start * p.outputs
            n = rows * p.outputs
            push = SEQUENCE_BACKWARD_PUSH.pack(
                n=n,
                size=p.outputs,
                g_at=g_at,
                saved_at=0,
                before_at=0,
                gates_at=outputs_at,
                gates_h_at=0,
                hidden_at=hidden,
                cell_at=0,
                adds=1,
            )
            run(BACKWARD[AFTER_PROJECTION], strided_grid(n, WORKGROUP), push, s, g, out, out)
            project(units, 0, out, outputs_at, rows)
            g_at = 0
        push = SEQUENCE_BACKWARD_PUSH.pack(
            n=rows * p.size, size=p.size, g_at=g_at, saved_at=s.offset + saved.start + start * saved.columns,
            before_at=s.offset + before["before"].start + start * p.outputs,
            gates_at=at["gates"].start + start * columns, gates_h_at=terms.start + start * columns,
            hidden_at=hidden, cell_at=at["cell"].start if p.cell.has_cell else 0, adds=int(not p.projected),
        )  # fmt: skip
        grid = strided_grid(rows * p.size, WORKGROUP)
        run(BACKWARD[p.cell.number], grid, push, s, units, out, out)
        product(out, hidden, out, terms.start + start * columns, rows)


@export()
@op(
    infer=_infer,
    flops=lambda grad, result, weight, *rest, sizes, **others: 2 * sum(sizes) * weight.numel(),
    kernel=Kernel(_run, (*BACKWARD.values(), *GEMM_SHADERS), halves="widened"),
    examples=(
        example((5, 2), (140,), (12, 2), (3, 2), (3, 3), (2, 3), sizes=(3, 2)),
        example((12, 5), (520,), (20, 5), None, (4, 5), None, sizes=(4, 4, 4)),
        example((13, 7), (826,), (28, 7), None, None, None, sizes=(7, 5, 1), reverse=True),
        example((13, 7), (595,), (21, 7), (7, 7), None, None, mode="gru", sizes=(7, 5, 1)),
        example((3, 4), (76,), (12, 4), None, None, None, mode="gru", sizes=(1, 1, 1), reverse=True),
        example((13, 5), (165,), (5, 5), (7, 5), None, None, mode="tanh", sizes=(7, 6)),
        example((9, 3), (69,), (3, 3), None, None, None, mode="relu", sizes=(5, 4)),
        example((0, 5), (0,), (5, 5), None, None, None, mode="relu", sizes=(0,)),
    ),
)
def recurrent_sequence_backward(
    grad: Array,
    result: Array,
    weight: Array,
    grad_hidden: Array | None = None,
    grad_cell: Array | None = None,
    projection: Array | None = None,
    mode: str = "lstm",
    sizes: tuple[int, ...] = (),
    reverse: bool = False,
) -> Array:
    """The gradient of :func:`recurrent_sequence`, but for the weights.

    Those are products of its parts with what the result holds: ``gates.T @ before`` for that of the hidden
    state, ``outputs.T @ units`` for a projection.

    Args:
        grad: the gradient of the outputs, shape (rows, outputs).
        result: what :func:`recurrent_sequence` returned.
        weight, projection, mode, sizes, reverse: its arguments.
        grad_hidden, grad_cell: the gradients of the last states, zeros if not given.

    Returns:
        One axis: the gradients of `gates_x` (rows, gates * size), for a GRU that of the hidden state's terms
        (rows, gates * size), those of the first hidden state (N, outputs) and of an LSTM's first cell state
        (N, size), and with a projection that of the outputs by all ways (rows, outputs).

    Raises:
        ShapeError, DTypeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> x, w, how = dl.tensor([[1.0], [2.0]]), dl.tensor([[2.0]]), {"mode": "relu", "sizes": (1, 1)}
        >>> result = dl.ops.recurrent_sequence(x, dl.ones(1, 1), w, **how)
        >>> dl.ops.recurrent_sequence_backward(dl.tensor([[3.0], [5.0]]), result, w, **how).tolist()
        [13.0, 5.0, 26.0]
    """
    p = _check(grad, result, weight, grad_hidden, grad_cell, projection, mode, sizes)
    regions = layout.gradient_regions(p)
    flat = np.empty(layout.length(regions), grad.dtype)
    at = {name: region.of(flat) for name, region in regions.items()}
    found = {name: region.of(result) for name, region in layout.result_regions(p, save=True).items()}
    at["hidden"][...] = 0 if grad_hidden is None else grad_hidden
    if p.cell.has_cell:
        at["cell"][...] = 0 if grad_cell is None else grad_cell
    total, rule = np.empty((p.batch, p.outputs), grad.dtype), cells.RULES[mode]
    for start, rows in reversed(layout.time_steps(sizes, reverse=reverse)):
        part = slice(start, start + rows)
        state = at["hidden"][:rows]
        g = np.add(grad[part], state, out=total[:rows])
        if projection is not None:
            at["outputs"][part] = g
            g = np.matmul(g, projection)
        kept = found["saved" if p.cell.saved else "outputs"][part]
        values = cells.columns(kept, rule.saved) | {"hidden": found["before"][part]}
        given = {"grad": g, "grad_cell": at["cell"][:rows]} if p.cell.has_cell else {"grad": g}
        values = cells.step_backward(rule, values, **given)
        for region, names in zip(("gates", "gates_h"), rule.gradients, strict=False):
            terms = np.concatenate([values[name] for name in names], axis=1, out=at[region][part])
        if p.cell.has_cell:
            at["cell"][:rows] = values["grad_cell"]
        np.matmul(terms, weight, out=state)
        if p.cell.separate:
            state += values["grad"]
    return flat
