"""The export of modules as ONNX files."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dl4all.onnx.exporter.op_forms  # noqa: F401 - declares the forms of ops
from dl4all.errors import ArgumentError, GraphError
from dl4all.io.files import replaced
from dl4all.nn.module import Module
from dl4all.onnx.dtypes import protobuf
from dl4all.onnx.exporter.dynamic_sizes import Merger, OpenSize
from dl4all.onnx.exporter.recording import CallRecording, flat, record, recording_device
from dl4all.onnx.exporter.simplification import simplified
from dl4all.onnx.exporter.writer import DraftNode, GraphWriter
from dl4all.onnx.graph import NDArray
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.tensor.creation import empty
from dl4all.tensor.tensor import Tensor

OLDEST_OPSET, OPSET = 17, 18
LARGEST = 2_000_000_000
"""Bytes of initializers in one file; protobuf has no more."""

VERIFY_TOLERANCE = 1e-4


class ExportSummary(NamedTuple):
    """The result of :func:`export`.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Linear(3, 2).eval()
        >>> isinstance(dl.onnx.export(net, dl.ones(1, 3), "net.onnx"), dl.onnx.ExportSummary)
        True
    """

    path: str
    opset: int
    nodes: dict[str, int]  # by operator
    parameters: int
    nbytes: int
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    error: float | None  # against ONNX Runtime, relative to the largest result; None unless it was to verify


def export(
    model: Module,
    args: Any,
    f: str | os.PathLike[str],
    *,
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    dynamic_shapes: Any = None,
    opset_version: int = OPSET,
    verify: bool = False,
    **ignored: Any,
) -> ExportSummary:
    """Write a module as an ONNX file.

    A copy runs on a device that computes nothing, so that any size takes no memory, and what its ops are is
    written. Sizes that stay open are found by running it again at others.

    Args:
        model: in evaluation mode.
        args: its arguments, a tensor or a tuple of them, of which the shapes and dtypes count.
        f: the file. Initializers beyond 2 GB go to a file of that name with ``.data``.
        kwargs: further tensors by name.
        input_names, output_names: in the graph; otherwise those of ``forward``, and ``output``.
        dynamic: for each input the axes whose sizes stay open, with names: ``{"x": {0: "batch"}}``.
        dynamic_axes, dynamic_shapes: the same as PyTorch has it.
        opset_version: 17 to the newest of the installed package ``onnx``.
        verify: whether ONNX Runtime, which must be installed, computes the file and its results are compared.
        ignored: further arguments of PyTorch's, without effect.

    Raises:
        GraphError: the module is in training mode, reads elements, has an op without an ONNX form, or sizes
            that do not follow from those that stay open; the message names the line.
        ArgumentError: an argument does not fit.
        BackendMissingError: the package ``onnx`` is not installed.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Linear(3, 2), dl.nn.ReLU()).eval()
        >>> dl.onnx.export(net, dl.ones(1, 3), "net.onnx", input_names=["x"], dynamic={"x": {0: "n"}}).nodes
        {'Gemm': 1, 'Relu': 1}
        >>> dl.onnx.load("net.onnx")(dl.ones(5, 3)).shape
        (5, 2)
    """
    onnx = protobuf()
    tensors = (args,) if isinstance(args, TensorBase) else tuple(args)
    named = dict(kwargs or {})
    if any(module.training for module in model.modules()):
        raise GraphError("[onnx.export] the module is in training mode; call .eval()")
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset_version <= newest:
        raise ArgumentError(
            f"[onnx.export] expected an opset of {OLDEST_OPSET} to {newest}, got {opset_version}"
        )
    examples = [value for value in (*tensors, *named.values()) if isinstance(value, TensorBase)]
    names = _input_names(model, tensors, named, input_names)
    opens = _open_sizes(names, examples, dynamic or dynamic_axes, dynamic_shapes)
    weights = {name: t.detach().numpy() for name, t in (*model.named_parameters(), *model.named_buffers())}
    ghost = copy.deepcopy(model).to(recording_device())
    sizes = list(_sizes(opens, names, examples))
    recordings = [_recorded(ghost, tensors, named, opens, at, names) for at in sizes]
    outputs = _output_names(len(recordings[0].outputs), output_names)
    drafts = [
        GraphWriter(recording, weights, names, opset_version).write(outputs) for recording in recordings
    ]
    nodes, initializers = simplified(*Merger(drafts, opens, sizes).merged(), outputs)
    results = [(operand.dtype, tuple(operand.shape)) for operand in recordings[0].outputs]
    inputs = list(zip(names, examples, strict=True))
    declared = list(zip(outputs, results, strict=True))
    proto = _proto(nodes, initializers, inputs, declared, opens, opset_version)
    path = Path(f)
    total = sum(array.nbytes for array in initializers.values())
    _save(onnx, proto, path, total)
    error = _verified(model, tensors, named, path, names) if verify else None
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    parameters = sum(p.numel() for p in model.parameters())
    return ExportSummary(
        str(path), opset_version, counts, parameters, total, tuple(names), tuple(outputs), error
    )


def _input_names(
    model: Module, tensors: Sequence[Any], named: Mapping[str, Any], given: Sequence[str] | None
) -> list[str]:
    count = sum(isinstance(v, TensorBase) for v in (*tensors, *named.values()))
    if given is not None:
        if len(given) != count or len(set(given)) != count:
            raise ArgumentError(f"[onnx.export] expected {count} input names, got {list(given)}")
        return list(given)
    code = getattr(type(model).forward, "__code__", None)
    words = list(code.co_varnames[1 : code.co_argcount]) if code is not None else []
    chosen = []
    for i, value in enumerate(tensors):
        if isinstance(value, TensorBase):
            chosen.append(words[i] if i < len(words) else f"input_{i}")
    return [*chosen, *(name for name, value in named.items() if isinstance(value, TensorBase))]


def _open_sizes(names: Sequence[str], examples: Sequence[Any], dynamic: Any, shapes: Any) -> list[OpenSize]:
    """The axes whose sizes stay open."""
    if shapes is not None:
        pairs = shapes.items() if isinstance(shapes, Mapping) else zip(names, shapes, strict=True)
        dynamic = {name: axes for name, axes in pairs if axes}
    found = []
    for name, axes in (dynamic or {}).items():
        if name not in names:
            raise ArgumentError(f"[onnx.export] there is no input {name!r}; use {', '.join(names)}")
        ndim = len(examples[names.index(name)].shape)
        if not isinstance(axes, Mapping):
            axes = (
                {i: axis for i, axis in enumerate(axes) if axis is not None}
                if shapes
                else dict.fromkeys(axes)
            )
        for axis, label in axes.items():
            if label is None and shapes is not None:
                continue
            if not -ndim <= axis < ndim:
                raise ArgumentError(f"[onnx.export] {name!r} has {ndim} axes, and no axis {axis}")
            label = getattr(label, "__name__", label) or f"{name}_{axis % ndim}"
            found.append(OpenSize(str(label), name, axis % ndim))
    return found


def _sizes(
    opens: Sequence[OpenSize], names: Sequence[str], examples: Sequence[Any]
) -> Iterable[tuple[int, ...]]:
    """The open sizes of each recording, by their names: the given ones, one changed each, and others."""
    labels = list(dict.fromkeys(o.name for o in opens))
    first = {o.name: examples[names.index(o.source)].shape[o.axis] for o in reversed(opens)}
    # At a size of 1 axes look like others, or like none.
    base = tuple(max(first[label], 2) for label in labels)
    yield base
    for k in range(len(labels)):
        yield tuple(n + (i == k) for i, n in enumerate(base))
    if labels:
        yield tuple(n + 2 + i for i, n in enumerate(base))
        yield tuple(n + 5 for n in base)


def _recorded(
    ghost: Module,
    tensors: Sequence[Any],
    named: Mapping[str, Any],
    opens: Sequence[OpenSize],
    at: Sequence[int],
    names: Sequence[str],
) -> CallRecording:
    """A call at some sizes."""
    labels = list(dict.fromkeys(o.name for o in opens))
    waiting = iter(names)

    def stand_in(value: Any) -> Any:
        if not isinstance(value, TensorBase):
            return value
        name, shape = next(waiting), list(value.shape)
        for o in opens:
            if o.source == name:
                shape[o.axis] = at[labels.index(o.name)]
        return empty(*shape, dtype=value.dtype, device=recording_device())

    stand_ins = [stand_in(value) for value in tensors]
    return record(ghost, stand_ins, {name: stand_in(value) for name, value in named.items()})


def _output_names(count: int, given: Sequence[str] | None) -> list[str]:
    usual = ["output"] if count == 1 else [f"output_{i}" for i in range(count)]
    names = list(given) if given else usual
    if len(names) != count or len(set(names)) != count:
        raise ArgumentError(f"[onnx.export] expected {count} output names, got {names}")
    return names


def _proto(
    nodes: Sequence[DraftNode],
    initializers: Mapping[str, NDArray],
    inputs: Sequence[tuple[str, Any]],
    outputs: Sequence[tuple[str, tuple[str, tuple[int, ...]]]],
    opens: Sequence[OpenSize],
    opset: int,
) -> Any:
    """The message of a graph: inputs with examples, outputs with dtypes and shapes."""
    onnx = protobuf()
    helper = onnx.helper

    def info(name: str, dtype: Any, shape: Sequence[Any]) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)

    declared = []
    for name, example in inputs:
        shape: list[Any] = list(example.shape)
        for o in opens:
            if o.source == name:
                shape[o.axis] = o.name
        declared.append(info(name, example.dtype, shape))
    results = [info(name, dtype, [None] * len(shape) if opens else shape) for name, (dtype, shape) in outputs]
    protos = []
    for i, n in enumerate(nodes):
        name = f"{n.op_type}_{i}"
        made = helper.make_node(n.op_type, n.inputs, n.outputs, name=name, doc_string=n.line, **n.attributes)
        protos.append(made)
    arrays = [onnx.numpy_helper.from_array(np.array(array), name) for name, array in initializers.items()]
    graph = helper.make_graph(protos, "dl4all", declared, results, arrays)
    # Engines refuse files of a newer format than they know, even where nothing in them is new.
    version = onnx.IR_VERSION if opset >= 24 else min(onnx.IR_VERSION, 10)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], producer_name="dl4all", ir_version=version
    )
    return onnx.shape_inference.infer_shapes(model) if opens else model


def _save(onnx: Any, proto: Any, path: Path, total: int) -> None:
    """Write a file that the checker passes; what is beyond protobuf's limit goes to a second one."""
    if total > LARGEST:  # which the checker takes by path only
        onnx.save_model(proto, path, save_as_external_data=True, location=f"{path.name}.data")
        onnx.checker.check_model(str(path), full_check=True)
        return
    onnx.checker.check_model(proto, full_check=True)
    with replaced(path) as draft:
        draft.write_bytes(proto.SerializeToString())


def _verified(
    model: Module, tensors: Sequence[Any], named: Mapping[str, Any], path: Path, names: Sequence[str]
) -> float:
    """The difference of ONNX Runtime's results from the module's, over the largest.

    Raises:
        GraphError: farther than rounding.
    """
    import onnxruntime

    from dl4all.autograd.grad_mode import no_grad

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    values = [v for v in (*tensors, *named.values()) if isinstance(v, TensorBase)]
    given = dict(zip(names, (v.on_host() for v in values), strict=True))
    kept = {i.name for i in session.get_inputs()}
    with no_grad():
        result = model(*tensors, **named)
    error = 0.0
    expected = flat(result)
    for got, wanted in zip(
        session.run(None, {n: v for n, v in given.items() if n in kept}), expected, strict=True
    ):
        array = wanted.detach().numpy() if isinstance(wanted, Tensor) else np.asarray(wanted)
        scale = float(np.abs(array).max(initial=0)) or 1.0
        error = max(error, float(np.abs(got.astype(np.float64) - array).max(initial=0)) / scale)
    if error > VERIFY_TOLERANCE:
        raise GraphError(
            f"[onnx.export] ONNX Runtime's results differ by {error:.1e} of the largest; the file is wrong"
        )
    return error
