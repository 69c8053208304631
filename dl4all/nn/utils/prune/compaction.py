"""Networks without the channels and heads that structured pruning has left at zero.

Where channels go is found by computing, not by rules for each op. A nan stands for what is not known: with
nan in the inputs and in every channel that was not pruned, what is a number in front of a layer is a constant
there, whatever the inputs are. And with nan in one channel, the layers that see it are those that it reaches.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dl4all.autograd.grad_mode import no_grad
from dl4all.errors import ArgumentError, Dl4allError
from dl4all.nn.module import Module
from dl4all.nn.modules.activation import PReLU
from dl4all.nn.modules.attention import MultiheadAttention
from dl4all.nn.modules.conv import Conv1d, Conv2d, Conv3d
from dl4all.nn.modules.linear import Linear
from dl4all.nn.modules.normalization import BatchNorm
from dl4all.nn.parameter import Parameter
from dl4all.nn.utils.prune.masks import custom_from_mask, pruned_names, recompute, remove
from dl4all.tensor.creation import from_numpy, zeros_like
from dl4all.tensor.tensor import Tensor

PROBES = 31  # samples, of which each has one channel that is followed: a number that few axes have
TOLERANCE = 1e-4  # of the largest element of a result

M = TypeVar("M", bound=Module)
Array = npt.NDArray[Any]
Column = tuple[str, int]
"""A channel in front of a layer: the layer's name, and the channel's index."""
Row = tuple[str, int]
"""A channel behind a layer."""


class Constants(NamedTuple):
    """Channels in front of a layer that have one value each, whatever the inputs are."""

    known: npt.NDArray[np.bool_]
    values: Array


def compact(model: M, example: Tensor | tuple[Tensor, ...]) -> M:
    """A network without pruned channels and heads, which computes the same as the pruned one.

    A channel goes where its row of a :class:`~dl4all.nn.Linear`'s or a convolution's weight is zero (as
    :func:`ln_structured` along axis 0 leaves it), and all layers that see it can do without: what its bias
    leaves there is added to their biases. It goes also where all layers that see it multiply it by zero (axis
    1), or a batch norm does. Channels stay where others are added to them that do not go, where the network's
    result has them, where a layer norm or an own parameter of the network sees them, and where a padded
    convolution sees a constant other than 0 (:func:`extend_to_norms` prevents that). A head of a
    :class:`~dl4all.nn.MultiheadAttention` goes where its columns of ``out_proj.weight`` are zero. At least
    one channel of each layer and one head stay.

    Args:
        model: the pruned network; it does not change.
        example: inputs, as ``model(*example)`` gets them, with the samples along axis 0. Two or more that
            differ: what is the same in all of them, as a word in a lookup, may count as a constant.

    Returns:
        A network of the same class with smaller layers, without masks; modes are those of ``model``.

    Raises:
        ArgumentError: without the channels it computes something else, or fails, as where a size stands in
            ``forward``.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Linear(4, 8), dl.nn.ReLU(), dl.nn.Linear(8, 2))
        >>> _ = dl.nn.utils.prune.ln_structured(net[0], "weight", amount=0.5, n=2, dim=0)
        >>> x = dl.rand(3, 4)
        >>> small = dl.nn.utils.prune.compact(net, x)
        >>> small[0], small[2], dl.allclose(small(x), net(x), atol=1e-5)
        (Linear(4, 4, bias=True), Linear(4, 2, bias=True), True)
    """
    inputs = example if isinstance(example, tuple) else (example,)
    made, modes = _evaluated(model)
    with no_grad():
        expected = [_results(made, given) for given in (inputs, _disturbed(inputs))]
        layers = _layers(made)
        constants = _constants(made, layers, inputs)
        rows, columns = _removable(made, layers, constants, inputs)
        for name, dropped in columns.items():
            _without_columns(layers[name], dropped, constants[name])
        for name, dropped in rows.items():
            _without_rows(layers[name], dropped)
        for part in made.modules():
            if isinstance(part, MultiheadAttention):
                _without_heads(part)
        for given, wanted in zip((inputs, _disturbed(inputs)), expected, strict=True):
            _check(made, given, wanted)
    for part, training in zip(made.modules(), modes, strict=True):
        part.training = training
    return made


def extend_to_norms(model: M, example: Tensor | tuple[Tensor, ...]) -> M:
    """Prune what batch norms make of pruned channels, so that these are 0 behind them, too.

    A batch norm makes a constant of a pruned channel, and in training learns another. After this, weight and
    bias of such channels are masked, and :func:`compact` finds them to be 0.

    Args:
        model: the pruned network, which changes.
        example: as for :func:`compact`.

    Returns:
        The network.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Conv2d(1, 4, 3), dl.nn.BatchNorm2d(4))
        >>> _ = dl.nn.utils.prune.random_structured(net[0], "weight", amount=1, dim=0)
        >>> net = dl.nn.utils.prune.extend_to_norms(net, dl.rand(2, 1, 5, 5))
        >>> (net[1].weight == 0).sum().item(), (net[1].bias_mask == 0).sum().item()
        (1, 1)
    """
    inputs = example if isinstance(example, tuple) else (example,)
    copied, _ = _evaluated(model)
    with no_grad():
        layers = _layers(copied)
        constants = _constants(copied, layers, inputs)
    for name, module in model.named_modules():
        if not isinstance(module, BatchNorm) or module.weight is None or name not in constants:
            continue
        known = constants[name].known
        if known.any():
            kept = (~known).astype(np.float32)
            for parameter in ("weight", "bias"):
                custom_from_mask(module, parameter, from_numpy(kept, module.weight.device))
    return model


# Layers


def _evaluated(model: M) -> tuple[M, list[bool]]:
    """A copy without masks, in evaluation mode, and the modes of its parts."""
    with no_grad():  # what a call has computed has a history, which cannot be copied
        for part in model.modules():
            for name in pruned_names(part):
                recompute(part, name)
    made = copy.deepcopy(model)
    for part in made.modules():
        for name in pruned_names(part):
            remove(part, name)
    modes = [part.training for part in made.modules()]
    made.eval()
    return made, modes


def _layers(model: Module) -> dict[str, Any]:
    """The layers whose channels may go, by name: not those that share parameters, nor a part of attention."""
    uses = Counter(id(p) for part in model.modules() for p in part._parameters.values() if p is not None)
    within = {id(m.out_proj) for m in model.modules() if isinstance(m, MultiheadAttention)}
    return {
        name: part
        for name, part in model.named_modules()
        if (_mixes(part) or _keeps(part))
        and "weight" in part._parameters  # not quantised, nor computed from others
        and id(part) not in within
        and all(uses[id(p)] == 1 for p in part._parameters.values() if p is not None)
    }


def _mixes(layer: Any) -> bool:
    """Whether a layer's channels are sums over those in front of it."""
    return type(layer) is Linear or (type(layer) in (Conv1d, Conv2d, Conv3d) and layer.groups == 1)


def _keeps(layer: Any) -> bool:
    """Whether a layer changes each channel by itself, by parameters of its own."""
    if type(layer) in (Conv1d, Conv2d, Conv3d):
        return bool(layer.groups == layer.in_channels == layer.out_channels)
    return isinstance(layer, BatchNorm) or (isinstance(layer, PReLU) and layer.num_parameters > 1)


def _channel_axis(layer: Module, x: Tensor) -> int:
    """The axis of the channels in front of a layer and behind it."""
    return x.ndim - 1 if isinstance(layer, Linear) else 1


def _channels_last(layer: Module, x: Tensor) -> Array:
    return np.moveaxis(x.detach().numpy(), _channel_axis(layer, x), -1)


def _by_channel(layer: Module, x: Tensor, values: Array, samples: int | None = None) -> Tensor:
    """Values (channels,), or (N, channels) for samples along an axis, to be added to a layer's result."""
    axis = _channel_axis(layer, x)
    shape = [1] * x.ndim
    shape[axis] = values.shape[-1]
    if samples is not None:
        shape[samples] = x.shape[samples]
        values = values.repeat(x.shape[samples] // len(values), 0)  # where other axes were joined to it
        values = values.T if samples > axis else values
    return from_numpy(values.reshape(shape).astype(np.float32), x.device).to(x.dtype)


def _axis_of_samples(shape: Sequence[int]) -> int | None:
    """The axis along which the probes are, in a shape without channels; None if there is none."""
    if PROBES in shape:
        return list(shape).index(PROBES)
    return 0 if shape and shape[0] and shape[0] % PROBES == 0 else None


def _zero_rows(layer: Any) -> npt.NDArray[np.bool_]:
    weight = layer.weight.detach().numpy()
    return np.asarray(~weight.reshape(len(weight), -1).any(1))


def _unused_columns(layer: Any) -> npt.NDArray[np.bool_]:
    """The channels in front of a layer that it multiplies by zero."""
    if isinstance(layer, PReLU) or layer.weight is None:
        return np.zeros(0 if layer.weight is None else len(layer.weight), bool)
    weight = layer.weight.detach().numpy()
    others = () if _keeps(layer) else (0,)
    return np.asarray(~weight.any((*others, *range(len(others) + 1, weight.ndim))))


@contextmanager
def _hooks(
    model: Module, before: Callable[[str, Module, Tensor], None], after: Callable[[str, Module, Tensor], Any]
) -> Iterator[None]:
    """Functions that see the input of each module that is called, and that may replace its result."""
    with ExitStack() as stack:
        for name, part in model.named_modules():

            def enter(module: Module, inputs: Any, name: str = name) -> None:
                if inputs and isinstance(inputs[0], Tensor):
                    before(name, module, inputs[0])

            def leave(module: Module, inputs: Any, result: Any, name: str = name) -> Any:
                return _replaced(result, lambda tensor: after(name, module, tensor))

            for handle in (part.register_forward_pre_hook(enter), part.register_forward_hook(leave)):
                stack.callback(handle.remove)
        yield


def _replaced(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """A result, which may be nested, with other tensors where a function gives one."""
    if type(value) is tuple:
        return tuple(_replaced(part, function) for part in value)
    if not isinstance(value, Tensor):
        return value
    other = function(value)
    return value if other is None else other


# Where channels are constant


def _constants(model: Module, layers: dict[str, Any], inputs: Sequence[Tensor]) -> dict[str, Constants]:
    """The constants in front of each layer."""
    found: dict[str, Constants] = {}

    def before(name: str, module: Module, x: Tensor) -> None:
        if name not in layers:
            return
        values = _channels_last(module, x)
        values = values.reshape(-1, values.shape[-1])
        known = (values == values[:1]).all(0) & (len(values) > 0)  # not of nan
        if _pads_zeros(module):
            known &= values[0] == 0
        if name in found:
            known &= found[name].known & (found[name].values == values[0])
        found[name] = Constants(known, values[0].copy())

    def after(name: str, module: Any, result: Tensor) -> Any:
        if name not in layers:
            return _unknown_result(module, result)
        alone = _zero_rows(module) if _mixes(module) else _unused_columns(module)
        if not alone.any() and _keeps(module):
            return None
        bias = module.bias.detach().numpy() if module.bias is not None else np.zeros(len(alone))
        others = zeros_like(result) + float("nan") if _mixes(module) else result
        masked = others.masked_fill(_by_channel(module, result, alone) != 0, 0.0)
        return masked + _by_channel(module, result, np.where(alone, bias, 0))

    with _hooks(model, before, after):
        model(*_unknown(inputs))
    return found


def _unknown(inputs: Sequence[Tensor]) -> list[Tensor]:
    """Inputs without their numbers; indices stay."""
    return [x + float("nan") if x.is_floating_point() else x for x in inputs]


def _pads_zeros(layer: Any) -> bool:
    if not isinstance(layer, (Conv1d, Conv2d, Conv3d)) or layer.padding_mode != "zeros":
        return False
    return isinstance(layer.padding, str) or any(layer.padding)


def _has_parameters(module: Module) -> bool:
    """Whether a module has parameters that are not a part's."""
    return any(p is not None for p in module._parameters.values())


def _unknown_result(module: Module, result: Tensor) -> Tensor | None:
    """The result of a module whose rows are not followed, without its numbers; None where it has no own."""
    is_known = not _has_parameters(module) or not result.is_floating_point()
    return None if is_known else result + float("nan")


# Where channels go


def _removable(
    model: Module, layers: dict[str, Any], constants: dict[str, Constants], inputs: Sequence[Tensor]
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """The rows, and the columns, of each layer that go together."""
    used = {name: layer for name, layer in layers.items() if name in constants}
    unused = {name: _unused_columns(layer) for name, layer in used.items()}
    unused = {name: columns & ~constants[name].known[: len(columns)] for name, columns in unused.items()}
    reached: dict[Row, set[Column]] = {}
    for name, layer in used.items():
        if _mixes(layer):
            follow = _zero_rows(layer) | any(columns.any() for columns in unused.values())
            reached.update(_followed(model, layers, name, np.flatnonzero(follow).tolist(), inputs))
    others = _reached_by_others(model, layers, inputs)

    def without(column: Column) -> bool:
        name, index = column
        # through a layer that keeps channels apart it goes on to others, which tell whether it is needed
        needless = _keeps(used[name]) or unused[name][index]
        return bool(constants[name].known[index] or (needless and column not in others))

    goes = {
        row: bool(columns) and ELSEWHERE not in columns and all(map(without, columns))
        for row, columns in reached.items()
    }
    sources: dict[Column, set[Row]] = defaultdict(set)
    for row, columns in reached.items():
        for column in columns:
            sources[column].add(row)
    stays: list[Row] = [row for row in reached if not goes[row]]
    followed = Counter(name for name, _ in reached)
    while stays:  # a column goes with all rows that reach it, and a row with all columns that it reaches
        for column in reached[stays.pop()]:
            for other in sources[column]:
                if goes[other]:
                    goes[other] = False
                    stays.append(other)
        if not stays:  # one row of each layer stays
            gone = Counter(name for (name, _), is_gone in goes.items() if is_gone)
            for name in [name for name in followed if gone[name] == len(used[name].weight)]:
                goes[name, 0] = False
                stays.append((name, 0))
    rows_of, columns_of = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    rows = [row for row, is_gone in goes.items() if is_gone]
    for name, index in rows:
        rows_of[name].append(index)
    for name, index in {column for row in rows for column in reached[row]}:
        columns_of[name].append(index)
    return rows_of, columns_of


ELSEWHERE = ("", -1)
"""The column of a channel that something else than a layer sees: the result, or a module with parameters."""


def _followed(
    model: Module, layers: dict[str, Any], source: str, rows: Sequence[int], inputs: Sequence[Tensor]
) -> dict[Row, set[Column]]:
    """The columns that each row of a layer reaches, found with a sample for each row."""
    found: dict[Row, set[Column]] = {(source, row): set() for row in rows}
    for start in range(0, len(rows), PROBES):
        some = list(rows[start : start + PROBES])
        some += [-1] * (PROBES - len(some))  # samples in which nothing is followed
        marks = np.zeros((PROBES, len(layers[source].weight)))
        for sample, row in enumerate(some):
            if row >= 0:
                marks[sample, row] = np.nan

        def see(values: Array, name: str, some: Sequence[int] = some) -> None:
            samples, unknown = _axis_of_samples(values.shape[:-1]), np.isnan(values)
            if samples is None:
                name, unknown = "", np.broadcast_to(unknown.any(), (PROBES, 1))
            else:
                unknown = np.moveaxis(unknown, samples, 0).reshape(PROBES, -1, values.shape[-1]).any(1)
            for sample, column in zip(*np.nonzero(unknown), strict=True):
                if some[sample] >= 0:
                    found[source, some[sample]].add((name, int(column)) if name else ELSEWHERE)

        def before(name: str, module: Module, x: Tensor, see: Any = see) -> None:
            if name in layers:
                see(_channels_last(module, x), name)
            elif _has_parameters(module) and x.is_floating_point():
                see(x.detach().numpy(), "")

        def after(name: str, module: Any, result: Tensor, marks: Array = marks) -> Any:
            if name not in layers or not _mixes(module):
                return None
            known = result.nan_to_num()
            if name != source:
                return known
            axis = _channel_axis(module, result)
            samples = _axis_of_samples([size for i, size in enumerate(result.shape) if i != axis])
            if samples is None:
                for columns in found.values():
                    columns.add(ELSEWHERE)
                return known
            samples += samples >= axis
            return known + _by_channel(module, result, marks, samples)

        batch = len(inputs[0])
        repeated = [
            x[:1].expand(PROBES, *x.shape[1:]).clone() if x.ndim and len(x) == batch else x for x in inputs
        ]
        with _hooks(model, before, after):
            for result in _tensors(model(*repeated)):
                if result.is_floating_point():
                    see(result.detach().numpy()[..., None], "")
    return found


def _reached_by_others(model: Module, layers: dict[str, Any], inputs: Sequence[Tensor]) -> set[Column]:
    """The columns that the inputs reach, and modules whose rows are not followed."""
    found = set[Column]()

    def before(name: str, module: Module, x: Tensor) -> None:
        if name in layers:
            values = np.isnan(_channels_last(module, x))
            columns = np.flatnonzero(values.reshape(-1, values.shape[-1]).any(0))
            found.update((name, int(column)) for column in columns)

    def after(name: str, module: Any, result: Tensor) -> Any:
        if name in layers:
            return result.nan_to_num() if _mixes(module) else None
        return _unknown_result(module, result)

    with _hooks(model, before, after):
        model(*_unknown(inputs))
    return found


# Without them


def _without_rows(layer: Any, dropped: Sequence[int]) -> None:
    kept = np.setdiff1d(np.arange(len(layer.weight)), dropped)
    _keep(layer, kept, ("weight", "bias"))
    setattr(layer, "out_features" if isinstance(layer, Linear) else "out_channels", len(kept))


def _without_columns(layer: Any, dropped: Sequence[int], constants: Constants) -> None:
    """Take channels in front of a layer away; what they add to the result goes to the bias."""
    kept = np.setdiff1d(np.arange(len(constants.known)), dropped)
    if _keeps(layer):
        _keep(layer, kept, ("weight", "bias", "running_mean", "running_var"))
        for name in ("in_channels", "out_channels", "groups", "num_features", "num_parameters"):
            if hasattr(layer, name):
                setattr(layer, name, len(kept))
        return
    weight = layer.weight.detach().numpy()
    added = weight.astype(np.float64).reshape(*weight.shape[:2], -1).sum(2)[:, dropped]
    added = added @ np.nan_to_num(constants.values[list(dropped)].astype(np.float64))  # nan where unused
    if added.any():
        bias = 0 if layer.bias is None else layer.bias.detach().numpy()
        layer.bias = _parameter((bias + added).astype(weight.dtype), layer.weight)
    _keep(layer, kept, ("weight",), axis=1)
    setattr(layer, "in_features" if isinstance(layer, Linear) else "in_channels", len(kept))


def _keep(layer: Module, kept: Array, names: Sequence[str], axis: int = 0) -> None:
    """Elements at some indices along an axis, of those of some parameters and buffers that are there."""
    for name in names:
        tensor = getattr(layer, name, None)
        if tensor is not None:
            values = np.ascontiguousarray(tensor.detach().numpy().take(kept, axis))
            is_parameter = isinstance(tensor, Parameter)
            made = _parameter(values, tensor) if is_parameter else from_numpy(values, tensor.device)
            setattr(layer, name, made)


def _parameter(values: Array, like: Tensor) -> Parameter:
    return Parameter(from_numpy(np.ascontiguousarray(values), like.device), like.requires_grad)


def _without_heads(attention: Any) -> None:
    """Take the heads away whose columns of the projection behind them are zero."""
    inner = attention.out_proj.weight.shape[1]
    size = inner // attention.num_heads
    columns = attention.out_proj.weight.detach().numpy().reshape(-1, attention.num_heads, size)
    used = columns.any((0, 2))
    if used.all():
        return
    used[0] |= not used.any()
    kept = np.flatnonzero(np.repeat(used, size))
    stacked = np.concatenate([part * inner + kept for part in range(3)])
    _keep(attention, stacked, ("in_proj_weight", "in_proj_bias"))
    _keep(attention, kept, ("q_proj_weight", "k_proj_weight", "v_proj_weight"))
    _keep(attention, kept, ("bias_k", "bias_v"), axis=2)
    _keep(attention.out_proj, kept, ("weight",), axis=1)
    attention.num_heads = int(used.sum())
    attention.out_proj.in_features = len(kept)


# Whether it computes the same


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of a result, which may be nested."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def _results(model: Module, inputs: Sequence[Tensor]) -> list[Array]:
    return [result.detach().numpy() for result in _tensors(model(*inputs))]


def _disturbed(inputs: Sequence[Tensor]) -> list[Tensor]:
    """Other numbers of the same kind: the samples in the other order, and floats turned round and doubled."""
    turned = [x.flip(0) if x.ndim else x for x in inputs]
    return [x * -2 if x.is_floating_point() else x for x in turned]


def _check(model: Module, inputs: Sequence[Tensor], wanted: Sequence[Array]) -> None:
    """
    Raises:
        ArgumentError: the results are others, or there are none.
    """
    try:
        found = _results(model, inputs)
    except Dl4allError as error:
        raise ArgumentError(
            f"[compact] without its pruned channels {type(model).__name__} fails: {error}; "
            "forward may have a size in it, which is to be that of a tensor"
        ) from error
    for got, want in zip(found, wanted, strict=True):
        bound = TOLERANCE * max(float(np.abs(want).max(initial=0)), 1e-30)
        if got.shape != want.shape or not np.allclose(got, want, 0, bound, equal_nan=True):
            raise ArgumentError(
                f"[compact] without its pruned channels {type(model).__name__} computes something else: "
                "an op in it makes a number of nan, or sizes come from its channels"
            )
