"""Which results share memory with an operand: dl4all's functions beside PyTorch's, by trying.

Each sample is also tried in other layouts in memory and with axes of 1 and 0 elements, where many functions
have nothing to do: a copy there that is none, or a view there that is none, loses somebody's writes.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F

import dl4all as dl
from lab.peer_databases import functions
from lab.peer_databases.functions import Missing
from lab.peer_databases.operands import moved, peer_tensors
from lab.peer_databases.outcome import Outcome
from lab.torch_databases import operators
from lab.torch_databases.comparison import Wrong, described
from lab.torch_databases.operators import Operands, detached
from lab.torch_databases.samples import changed, copied, each_layout, is_plain, on_device, tensors

Computed = Callable[[Callable[..., Any], Operands], tuple[list[Any], list[Any]]]

SAMPLES = 12
"""How many samples of an op are taken."""

LAYOUT_FORMATS = (torch.preserve_format, torch.contiguous_format)

UNCHECKED = ("_segment_reduce",)
"""Ops whose sizes PyTorch does not check: others than its own samples end the process."""

X = torch.arange(12.0)
NEUTRAL: list[tuple[str, Callable[..., Any], Operands]] = [
    ("roll", torch.roll, (X.reshape(3, 4), (4,), {"dims": 1})),
    ("roll", torch.roll, (X, (0,), {})),
    ("repeat", torch.Tensor.repeat, (X, (1,), {})),
    ("tile", torch.tile, (X, ((1,),), {})),
    ("flip", torch.flip, (X, ((),), {})),
    ("rot90", torch.rot90, (X.reshape(3, 4), (4,), {})),
    ("repeat_interleave", torch.repeat_interleave, (X, (1,), {})),
    ("matrix_power", torch.matrix_power, (X[:9].reshape(3, 3), (1,), {})),
    ("pad", F.pad, (X.reshape(1, 3, 4), ((0, 0),), {})),
    ("pad", F.pad, (X.reshape(1, 3, 4), ((0, 0),), {"mode": "reflect"})),
    ("pad", F.pad, (X.reshape(1, 3, 4), ((0, 0),), {"mode": "replicate"})),
    ("pad", F.pad, (X.reshape(1, 3, 4), ((0, 0),), {"mode": "circular"})),
    ("pixel_shuffle", F.pixel_shuffle, (X.reshape(1, 1, 3, 4), (1,), {})),
    ("pixel_unshuffle", F.pixel_unshuffle, (X.reshape(1, 1, 3, 4), (1,), {})),
    ("channel_shuffle", F.channel_shuffle, (X.reshape(1, 2, 3, 2), (1,), {})),
    ("interpolate", F.interpolate, (X.reshape(1, 1, 3, 4), ((3, 4),), {"mode": "nearest"})),
    ("interpolate", F.interpolate, (X.reshape(1, 1, 3, 4), ((3, 4),), {"mode": "area"})),
    (
        "interpolate",
        F.interpolate,
        (X.reshape(1, 1, 3, 4), ((3, 4),), {"mode": "bilinear", "align_corners": True}),
    ),
    ("dropout", F.dropout, (X, (), {"p": 0.0})),
    ("dropout", F.dropout, (X, (), {"training": False})),
    ("dropout2d", F.dropout2d, (X.reshape(1, 1, 3, 4), (), {"training": False})),
    ("alpha_dropout", F.alpha_dropout, (X, (), {"training": False})),
    ("clamp", torch.clamp, (X, (), {"min": -1.0})),
    ("to", torch.Tensor.to, (X, (torch.float32,), {})),
    ("float", torch.Tensor.float, (X, (), {})),
    ("type", torch.Tensor.type, (X, (torch.float32,), {})),
    ("type_as", torch.Tensor.type_as, (X, (X,), {})),
    ("contiguous", torch.Tensor.contiguous, (X, (), {})),
    ("cpu", torch.Tensor.cpu, (X, (), {})),
    ("positive", torch.positive, (X, (), {})),
    ("real", torch.real, (X, (), {})),
    ("resolve_conj", torch.resolve_conj, (X, (), {})),
    ("sum_to_size", torch.Tensor.sum_to_size, (X, (12,), {})),
    ("squeeze", torch.squeeze, (X, (), {})),
    ("expand", torch.Tensor.expand, (X, (12,), {})),
    ("reshape", torch.reshape, (X.reshape(3, 4).t(), ((4, 3),), {})),
    ("reshape", torch.reshape, (X.reshape(3, 4)[:, 1], ((3, 1),), {})),
    ("flatten", torch.flatten, (X.reshape(3, 4)[:, 1], (), {})),
    ("flatten", torch.flatten, (X.reshape(3, 4)[::2], (), {})),
    ("reshape", torch.reshape, (X.reshape(3, 4).t(), ((2, 2, 3),), {})),
    ("unflatten", torch.unflatten, (X.reshape(3, 4).t(), (0, (2, 2)), {})),
    ("ravel", torch.ravel, (X.reshape(3, 4)[:, 1], (), {})),
    ("einsum", lambda x: torch.einsum("ij->i", x), (X.reshape(12, 1), (), {})),
    ("einsum", lambda x: torch.einsum("ij->ji", x), (X.reshape(3, 4), (), {})),
    ("einsum", lambda x: torch.einsum("ii->i", x), (X[:9].reshape(3, 3), (), {})),
    ("cat", torch.cat, ([X], (), {})),
    ("stack", torch.stack, ([X], (), {})),
    ("hstack", torch.hstack, ([X], (), {})),
    ("block_diag", torch.block_diag, (X.reshape(3, 4), (), {})),
    ("broadcast_tensors", torch.broadcast_tensors, (X, (), {})),
    ("meshgrid", lambda x: torch.meshgrid(x, indexing="ij"), (X, (), {})),
    ("cartesian_prod", torch.cartesian_prod, (X, (), {})),
    ("atleast_1d", torch.atleast_1d, (X, (), {})),
    ("chunk", torch.chunk, (X, (1,), {})),
    ("as_tensor", torch.as_tensor, (X, (), {})),
    ("normalize", F.normalize, (X.reshape(3, 4), (), {})),
    ("relu6", F.relu6, (X[:3], (), {})),
]  # fmt: skip
"""Calls that have nothing to do, or little."""


def entries(dtype: torch.dtype) -> dict[str, Any]:
    """The ops, and by ``call NUMBER NAME`` the calls of :data:`NEUTRAL`."""
    calls = {f"call {number} {entry[0]}": entry[1:] for number, entry in enumerate(NEUTRAL)}
    if not dl.get_default_device().is_host:
        calls = {name: call for name, call in calls.items() if not name.endswith(" cpu")}  # which copies
    return operators.entries(dtype) | calls


def by_peer(function: Callable[..., Any], operands: Operands) -> tuple[list[Any], list[Any]]:
    """The operands and the results of a call as tensors of dl4all."""
    peers = tuple(map(moved, operands))
    return peer_tensors(list(peers)), peer_tensors(functions.call(function, peers))


def on_dlall(function: Callable[..., Any], operands: Operands) -> tuple[list[Any], list[Any]]:
    """The operands and the results of a call as tensors of PyTorch on the device ``dlall``."""
    given = tuple(map(on_device, operands))
    return tensors(given), tensors(_called(function, given))


def check(
    name: str,
    entry: Any,
    dtype: torch.dtype,
    *,
    variants: bool = True,
    samples: int = SAMPLES,
    computed: Computed = by_peer,
) -> Outcome:
    """Compute the samples of an op.

    Args:
        name, entry: one of :func:`entries`.
        dtype: of the samples.
        variants: whether also by the method.
        samples: how many.
        computed: whose functions: :func:`by_peer` or :func:`on_dlall`.
    """
    outcome = Outcome(name)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function, operands in _calls(entry, dtype, variants, samples):
            forms = _each_form(operands, sizes=not name.startswith(UNCHECKED))
            try:
                for what, one in forms:
                    _check_call(outcome, function, one, what, computed)
            except Missing as error:
                outcome.count("missing", str(error))
                break
    return outcome


def _calls(
    entry: Any, dtype: torch.dtype, variants: bool, count: int
) -> Iterator[tuple[Callable[..., Any], Operands]]:
    if isinstance(entry, tuple):
        yield entry
        return
    samples = entry.sample_inputs("cpu", dtype, requires_grad=False)
    for sample in itertools.islice(samples, count):
        operands = detached((sample.input, tuple(sample.args), dict(sample.kwargs)))
        if sample.kwargs.get("memory_format", torch.preserve_format) not in LAYOUT_FORMATS:
            continue  # has no effect in dl4all
        yield entry.op, operands
        if variants and entry.method_variant and isinstance(sample.input, torch.Tensor):
            yield entry.method_variant, operands


def _each_form(operands: Operands, sizes: bool) -> Iterator[tuple[str, Operands]]:
    """The operands as they are, in other layouts, and with other `sizes` along an axis of the first one."""
    yield "", operands
    if not is_plain(operands):
        return
    for layout, other in each_layout(operands):
        yield f"{layout} ", other
    shapes = [tuple(one.shape) for one in tensors(operands)]
    for axis, size in itertools.product(range(len(shapes[0]) if shapes and sizes else 0), (1, 0)):

        def shorter(one: torch.Tensor, axis: int = axis, size: int = size) -> torch.Tensor:
            fits = one.dim() > axis and one.shape[axis] == shapes[0][axis] >= size
            return one.narrow(axis, 0, size).clone() if fits else one

        yield f"axis {axis} of {size}: ", changed(operands, shorter)


def _called(function: Callable[..., Any], operands: Operands) -> Any:
    return function(operands[0], *operands[1], **operands[2])


def _check_call(
    outcome: Outcome, function: Callable[..., Any], operands: Operands, what: str, computed: Computed
) -> None:
    given = copied(operands)
    try:
        result = tensors(_called(function, given))
    except Exception:  # noqa: BLE001 - sizes that PyTorch refuses show nothing
        return
    if not is_plain((given, result)) or any(one.is_complex() for one in result):
        return
    expected = _shared(tensors(given), result)
    with outcome.judging(f"{what}{described(operands)}"):
        sources, results = computed(function, copied(operands))
        got = _shared(sources, results)
        if expected - got:
            raise Wrong("a copy, PyTorch's shares memory")
        if got - expected:
            raise Wrong("shares memory, PyTorch's is a copy")
        same = [
            {(i, j) for i, a in enumerate(given) for j, b in enumerate(made) if a is b}
            for given, made in ((tensors(given), result), (sources, results))
        ]
        if same[0] != same[1] and "dropout" not in outcome.name:  # where nothing is dropped, either is right
            raise Wrong(f"the operand itself in {same[1] or 'no case'}, PyTorch's in {same[0] or 'none'}")
        for number in {pair[1] for pair in expected}:
            own, other = map(_elements, (result[number], results[number]))
            if own != other:
                raise Wrong(f"another view: {other}, PyTorch's {own}")


def _shared(sources: list[Any], results: list[Any]) -> set[tuple[int, int]]:
    """Pairs of an operand's and a result's number that share memory."""
    pairs = itertools.product(enumerate(sources), enumerate(results))
    return {(i, j) for (i, one), (j, other) in pairs if other.numel() and _memory(one) == _memory(other)}


def _memory(tensor: Any) -> int:
    return tensor.untyped_storage().data_ptr() if isinstance(tensor, torch.Tensor) else id(tensor.storage)


def _elements(view: Any) -> tuple[int, list[tuple[int, int]]]:
    """Which elements of its memory a tensor shows: its offset, and the axes' sizes and strides."""
    axes = zip(view.shape, view.stride(), strict=True)
    return view.storage_offset(), [(size, step) for size, step in axes if size > 1]
