"""A recurrent layer over a whole sequence: for each time step one product and one kernel for the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.core.dtypes import FLOAT32
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.kernels.launch import run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, empty, example, op
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.linalg.gemm import GEMM_SHADERS, SPACE, GemmProblem, gemm_with_tile
from dl4all.ops.linalg.matvec import MATVEC, MATVEC_MAX_ROWS, matvec
from dl4all.ops.memory.copy import copy_into
from dl4all.ops.memory.views import contiguous
from dl4all.ops.rnn import cells, layout
from dl4all.ops.rnn.layout import SequenceProblem

WORKGROUP = 64
AFTER_PROJECTION = 4  # CELL of the kernels that follow an LSTM's projection
SEQUENCE_PUSH = PushBlock(
    "rnn/sequence.comp",
    "uint n, size, x_at, outputs_at, hidden_at, cell_at, before_at, saved_at, saves, keeps;",
)
SEQUENCE = {
    layout.CELLS[mode].number: shader("rnn/sequence.comp", CELL=layout.CELLS[mode].number, RULE=rule.glsl())
    for mode, rule in cells.RULES.items()
}
SEQUENCE[AFTER_PROJECTION] = shader("rnn/sequence.comp", CELL=AFTER_PROJECTION)


class StepProduct:
    """``x @ w.T``, or ``x @ w``, for the rows of each time step, with a tile that is chosen once.

    Matrices are given by a tensor and where in its storage they start; x and the result have no gaps.
    """

    def __init__(
        self,
        weight: TensorBase,
        batch: int,
        *,
        transpose: bool,
        bias: TensorBase | None = None,
        adds: bool = False,
    ) -> None:
        self._weight, self._bias, self._adds, self._transpose = weight, bias, adds, transpose
        inner, columns = weight.shape[::-1] if transpose else weight.shape
        self._problem = GemmProblem(
            m=batch, n=columns, k=inner, lda=inner, ldb=weight.shape[1], ldc=columns,
            b_offset=weight.offset, transpose_b=transpose, bias_row=0, bias_column=1,
        )  # fmt: skip
        self._tile = autotune.choose(SPACE, weight.device, self._problem)

    def __call__(self, out: TensorBase, out_at: int, x: TensorBase, x_at: int, rows: int) -> None:
        """Fill, or with ``adds`` increase, the rows of `out` by the products of the rows of `x`."""
        p = self._problem
        if self._transpose and not out_at and rows <= MATVEC_MAX_ROWS:
            vectors = x.strided_view((rows, p.k), (p.k, 1), x_at)
            matvec(out, vectors, self._weight, self._bias, rows)
            return
        changes: dict[str, Any] = {"m": rows, "a_offset": x_at, "c_offset": out_at}
        if self._adds:
            changes.update(bias_offset=out_at, bias_row=p.n, matrix=True)
        bias = out if self._adds else self._bias
        gemm_with_tile(self._tile, out, x, self._weight, bias, replace(p, **changes))


def _check(
    gates_x: Any,
    hidden: Any,
    weight: Any,
    cell: Any,
    bias: Any,
    projection: Any,
    mode: str,
    sizes: tuple[int, ...],
) -> SequenceProblem:
    """The sizes of the problem.

    Raises:
        ShapeError, DTypeError, ArgumentError
    """
    name = "recurrent_sequence"
    p = layout.check_problem(name, weight, projection, mode, sizes)
    columns = p.cell.gates * p.size
    layout.check_operands(
        name,
        {
            "gates_x": (gates_x, (p.rows, columns)),
            "hidden": (hidden, (p.batch, p.outputs)),
            "weight": (weight, (columns, p.outputs)),
            "cell": (cell, (p.batch, p.size)),
            "bias": (bias, (columns,)),
            "projection": (projection, (p.outputs, p.size)),
        },
    )
    if (cell is not None) != p.cell.has_cell:
        raise ShapeError(f"[{name}] mode 'lstm' takes a cell state and the others none; got mode {mode!r}")
    return p


def _infer(
    gates_x: TensorBase,
    hidden: TensorBase,
    weight: TensorBase,
    cell: TensorBase | None,
    bias: TensorBase | None,
    projection: TensorBase | None,
    *,
    mode: str,
    sizes: tuple[int, ...],
    reverse: bool,
    save: bool,
) -> Result:
    p = _check(gates_x, hidden, weight, cell, bias, projection, mode, sizes)
    return (layout.length(layout.result_regions(p, save=save)),), gates_x.dtype


def _run(
    out: TensorBase,
    gates_x: TensorBase,
    hidden: TensorBase,
    weight: TensorBase,
    cell: TensorBase | None,
    bias: TensorBase | None,
    projection: TensorBase | None,
    *,
    mode: str,
    sizes: tuple[int, ...],
    reverse: bool,
    save: bool,
) -> None:
    p = _check(gates_x, hidden, weight, cell, bias, projection, mode, sizes)
    at = layout.result_regions(p, save=save)
    columns = p.cell.gates * p.size
    x, w = contiguous(gates_x), contiguous(weight)
    copy_into(at["hidden"].of(out), hidden)
    if cell is not None:
        copy_into(at["cell"].of(out), cell)
    sums = empty(type(out), (p.batch, columns), FLOAT32, out.device)
    product = StepProduct(w, p.batch, transpose=True, bias=None if bias is None else contiguous(bias))
    project = None if projection is None else StepProduct(contiguous(projection), p.batch, transpose=True)
    units = at["units" if p.projected else "outputs"]
    for start, rows in layout.time_steps(sizes, reverse=reverse):
        if not rows:
            continue
        product(sums, 0, out, at["hidden"].start, rows)
        places = [at["hidden"].start, _start(at, "cell"), 0, 0]
        if save:
            places[2] = at["before"].start + start * p.outputs
            places[3] = at["saved"].start + start * at["saved"].columns
        push = SEQUENCE_PUSH.pack(
            rows * p.size, p.size, x.offset + start * columns, units.start + start * p.size,
            *places, int(save), int(not p.projected),
        )  # fmt: skip
        run(SEQUENCE[p.cell.number], strided_grid(rows * p.size, WORKGROUP), push, x, sums, out, out)
        if project is not None:
            outputs_at = at["outputs"].start + start * p.outputs
            project(out, outputs_at, out, units.start + start * p.size, rows)
            n = rows * p.outputs
            push = SEQUENCE_PUSH.pack(n, p.outputs, 0, outputs_at, *places, int(save), 1)
            run(SEQUENCE[AFTER_PROJECTION], strided_grid(n, WORKGROUP), push, x, sums, out, out)


def _start(at: layout.Regions, name: str) -> int:
    return at[name].start if name in at else 0


@export()
@op(
    infer=_infer,
    flops=lambda gates_x, hidden, weight, *rest, sizes, **others: 2 * sum(sizes) * weight.numel(),
    # Floats of 16 bits are widened, as a step reads what earlier ones have written.
    kernel=Kernel(_run, (*SEQUENCE.values(), *GEMM_SHADERS, *MATVEC.values()), halves="widened"),
    examples=(
        example((5, 12), (3, 2), (12, 2), (3, 3), (12,), (2, 3), sizes=(3, 2)),
        example((12, 20), (4, 5), (20, 5), (4, 5), None, None, sizes=(4, 4, 4)),
        example((13, 28), (7, 7), (28, 7), (7, 7), None, None, sizes=(7, 5, 1), reverse=True),
        example((12, 20), (6, 5), (20, 5), (6, 5), None, None, sizes=(6, 6), save=False),
        example((13, 21), (7, 7), (21, 7), None, (21,), None, mode="gru", sizes=(7, 5, 1)),
        example((3, 12), (1, 4), (12, 4), None, None, None, mode="gru", sizes=(1, 1, 1), reverse=True),
        example((13, 5), (7, 5), (5, 5), None, None, None, mode="tanh", sizes=(7, 6)),
        example((9, 3), (5, 3), (3, 3), None, None, None, mode="relu", sizes=(5, 4), save=False),
        example((0, 5), (0, 5), (5, 5), None, None, None, mode="relu", sizes=(0,)),
    ),
)
def recurrent_sequence(
    gates_x: Array,
    hidden: Array,
    weight: Array,
    cell: Array | None = None,
    bias: Array | None = None,
    projection: Array | None = None,
    mode: str = "lstm",
    sizes: tuple[int, ...] = (),
    reverse: bool = False,
    save: bool = True,
) -> Array:
    """All time steps of a recurrent layer in one direction, as :class:`dl4all.nn.LSTM` computes them.

    Args:
        gates_x: the terms of the gates from the input, with all that does not depend on the hidden state,
            shape (rows, gates * size): the rows of all time steps, as in a packed sequence. There are 4 gates
            for an LSTM, 3 for a GRU, 1 for an RNN, in PyTorch's order.
        hidden: the first hidden state, shape (N, outputs).
        weight: that of the hidden state, shape (gates * size, outputs).
        cell: the first cell state of an LSTM, shape (N, size).
        bias: added to the terms of the gates from the hidden state, shape (gates * size,).
        projection: of an LSTM's hidden state, shape (outputs, size); without one outputs equals size.
        mode: ``"lstm"``, ``"gru"``, or ``"tanh"`` or ``"relu"`` for an RNN.
        sizes: how many rows each time step has, none more than the one before; the first has N.
        reverse: whether the last time step comes first.
        save: whether the result has what :func:`recurrent_sequence_backward` reads.

    Returns:
        One axis: the outputs (rows, outputs), the last hidden state (N, outputs), the last cell state (N,
        size) of an LSTM, the units (rows, size) before a projection, and what the gradient reads.

    Raises:
        ShapeError, DTypeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> x, w = dl.tensor([[1.0], [2.0], [-9.0]]), dl.tensor([[2.0]])
        >>> dl.ops.recurrent_sequence(
        ...     x, dl.ones(1, 1), w, mode="relu", sizes=(1, 1, 1), save=False
        ... ).tolist()
        [3.0, 8.0, 7.0, 7.0]
    """
    p = _check(gates_x, hidden, weight, cell, bias, projection, mode, sizes)
    regions = layout.result_regions(p, save=save)
    result = np.empty(layout.length(regions), gates_x.dtype)
    at = {name: region.of(result) for name, region in regions.items()}
    at["hidden"][...] = hidden
    if cell is not None:
        at["cell"][...] = cell
    units = at["units" if p.projected else "outputs"]
    rule, transposed = cells.RULES[mode], np.ascontiguousarray(weight.T)
    sums = np.empty((p.batch, p.cell.gates * p.size), gates_x.dtype)
    for start, rows in layout.time_steps(sizes, reverse=reverse):
        part = slice(start, start + rows)
        state, products = at["hidden"][:rows], sums[:rows]
        if save:
            at["before"][part] = state
        np.matmul(state, transposed, out=products)
        if bias is not None:
            products += bias
        old = {"hidden": state} if cell is None else {"cell": at["cell"][:rows]}
        values = cells.step(rule, gates_x[part], products, **old)
        units[part] = values["next"]
        if save and p.cell.saved:
            np.concatenate([values[name] for name in rule.saved], axis=1, out=at["saved"][part])
        if cell is not None:
            at["cell"][:rows] = values["new_cell"]
        if projection is not None:
            np.matmul(units[part], projection.T, out=at["outputs"][part])
        state[...] = at["outputs"][part]
    return result
