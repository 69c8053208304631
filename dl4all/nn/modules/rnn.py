"""Recurrent layers and cells: RNN, LSTM and GRU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias, TypeVar

from dl4all import ops
from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn import functional, init, recurrence
from dl4all.nn.module import Module
from dl4all.nn.parameter import Parameter
from dl4all.nn.recurrence import States, Steps, Weights
from dl4all.nn.utils.rnn import PackedSequence
from dl4all.ops.core.limits import LAYERS, integer
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.tensor.arguments import DeviceLike
from dl4all.tensor.creation import zeros
from dl4all.tensor.tensor import Tensor

Hidden: TypeAlias = Tensor | States
"""States as users pass and get them: a tensor, or for an LSTM the pair (hidden, cell)."""

SequenceOrPacked = TypeVar("SequenceOrPacked", Tensor, PackedSequence)


class _Recurrence(Module):
    """The parameters and the step that layers and cells have in common; the step here is that of an RNN."""

    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1
    nonlinearity: str = "tanh"
    proj_size: int = 0

    def __init__(self, input_size: int, hidden_size: int, bias: bool) -> None:
        super().__init__()
        if input_size < 1 or hidden_size < 1:
            raise ArgumentError(
                f"[{type(self).__name__}] cannot map {input_size} features to {hidden_size}; "
                "both must be positive"
            )
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias

    @property
    def _output_size(self) -> int:
        """The number of features of the hidden state, which is the output."""
        return self.proj_size or self.hidden_size

    def _add_parameters(self, inputs: int, suffix: str = "") -> None:
        rows, hidden = self.gates * self.hidden_size, self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, inputs),
            "weight_hh": (rows, self._output_size),
        }
        biases: dict[str, tuple[int, ...]] = {"bias_ih": (rows,), "bias_hh": (rows,)}
        projection: dict[str, tuple[int, ...]] = {"weight_hr": (self.proj_size, hidden)}
        for name, shape in (shapes | biases | (projection if self.proj_size else {})).items():
            exists = name not in biases or self.bias
            parameter = Parameter(init.fan_in_uniform(shape, hidden)) if exists else None
            setattr(self, name + suffix, parameter)

    @property
    def _mode(self) -> str:
        """The name of the kind of layer in :mod:`dl4all.nn.recurrence`."""
        return self.nonlinearity

    def _weights(self, suffix: str = "") -> Weights:
        """The parameters of one layer in one direction."""
        names = Weights._fields if self.proj_size else Weights._fields[:-1]
        return Weights(*(getattr(self, name + suffix) for name in names))

    def _initial_states(self, hx: Any, rows: tuple[int, ...], input: Tensor) -> States:
        """The initial states, zeros if there are none.

        Raises:
            ArgumentError: there is another number of states.
            ShapeError: a state has another shape.
        """
        shapes = ((*rows, self._output_size), (*rows, self.hidden_size))[: self.states]
        if hx is None:
            first = zeros(shapes[0], dtype=input.dtype, device=input.device)
            others = [
                first if shape == shapes[0] else zeros(shape, dtype=input.dtype, device=input.device)
                for shape in shapes[1:]
            ]
            return first, *others
        states = hx if self.states > 1 else (hx,)
        if not isinstance(states, (tuple, list)) or len(states) != self.states:
            raise ArgumentError(f"[{type(self).__name__}] expected the states as a tuple (hidden, cell)")
        for state, shape in zip(states, shapes, strict=True):
            if state.shape != shape:
                raise ShapeError(
                    f"[{type(self).__name__}] a state must have shape {shape}, got {state.shape}"
                )
        return tuple(states)

    def _hidden(self, states: States) -> Any:
        """States as users get them."""
        return states if self.states > 1 else states[0]

    def _check_features(self, x: Tensor, ranks: tuple[int, ...]) -> None:
        if x.ndim not in ranks or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"[{type(self).__name__}] expected an input of {' or '.join(map(str, ranks))} axes, the last "
                f"of size {self.input_size}, got {x.shape}"
            )


class _LstmStep(_Recurrence):
    """The step of an LSTM, with an optional projection of the hidden state."""

    gates, states = 4, 2

    @property
    def _mode(self) -> str:
        return "lstm"


class _GruStep(_Recurrence):
    """The step of a GRU."""

    gates = 3

    @property
    def _mode(self) -> str:
        return "gru"


class RNNBase(_Recurrence):
    """A stack of recurrent layers over whole sequences.

    Internally sequences are always packed: the rows of all time steps follow each other. The product of the
    input with its weights is one matrix product for all time steps.

    Example:
        >>> import dl4all as dl
        >>> isinstance(dl.nn.LSTM(2, 3), dl.nn.RNNBase)
        True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias)
        integer(type(self).__name__, "num_layers", num_layers, least=1, most=LAYERS)
        if not 0 <= dropout <= 1:
            raise ArgumentError(
                f"[{type(self).__name__}] expected a probability from 0 to 1 for dropout, got {dropout}"
            )
        self.num_layers, self.batch_first = num_layers, batch_first
        self.dropout, self.bidirectional = dropout, bidirectional
        for layer in range(num_layers):
            for suffix in self._suffixes(layer):
                self._add_parameters(
                    input_size if layer == 0 else self._output_size * self._directions, suffix
                )
        self._place(device, dtype)

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> tuple[str, ...]:
        return (f"_l{layer}", f"_l{layer}_reverse")[: self._directions]

    def flatten_parameters(self) -> None:
        """Does nothing; code written for PyTorch calls it."""

    def forward(self, input: SequenceOrPacked, hx: Any = None) -> tuple[SequenceOrPacked, Any]:
        """The outputs of the last layer for all time steps, and the states after the last time step.

        Raises:
            ShapeError, ArgumentError
        """
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        self._check_features(input, (2, 3))
        unbatched = input.ndim == 2
        x = input.unsqueeze(1) if unbatched else input.swapaxes(0, 1) if self.batch_first else input
        steps, batch = x.shape[:2]
        if not steps:
            raise ShapeError(f"[{type(self).__name__}] the input of shape {input.shape} has no time steps")
        if unbatched and hx is not None:
            hx = tuple(h.unsqueeze(1) for h in hx) if self.states > 1 else hx.unsqueeze(1)
        states = self._first_states(hx, batch, x)
        rows = ops.reshape(x, steps * batch, self.input_size)
        y, last = self._run_layers(rows, (batch,) * steps, states)
        y = ops.reshape(y, steps, batch, y.shape[1])
        if unbatched:
            return y.squeeze(1), self._hidden(tuple(s.squeeze(1) for s in last))
        return y.swapaxes(0, 1) if self.batch_first else y, self._hidden(last)

    def _forward_packed(self, input: PackedSequence, hx: Hidden | None) -> tuple[PackedSequence, Any]:
        self._check_features(input.data, (2,))
        if input.sorted_indices is not None and hx is not None:
            rows = (self.num_layers * self._directions, input.batch_sizes[0])
            hx = self._hidden(
                tuple(
                    ops.index_select(s, 1, input.sorted_indices)
                    for s in self._initial_states(hx, rows, input.data)
                )
            )
        states = self._first_states(hx, input.batch_sizes[0], input.data)
        y, last = self._run_layers(input.data, input.batch_sizes, states)
        if input.unsorted_indices is not None:
            last = tuple(ops.index_select(s, 1, input.unsorted_indices) for s in last)
        return input._replace(data=y), self._hidden(last)

    def _first_states(self, hx: Any, batch: int, input: Tensor) -> list[States]:
        """The initial states of each layer and direction."""
        count = self.num_layers * self._directions
        if hx is None:
            return [self._initial_states(None, (batch,), input)] * count
        states = self._initial_states(hx, (count, batch), input)
        return [tuple(s[number] for s in states) for number in range(count)]

    def _run_layers(self, x: Tensor, sizes: Sequence[int], states: Sequence[States]) -> tuple[Tensor, States]:
        """Run all layers over packed rows; `sizes` says how many rows each time step has."""
        last_states: list[States] = []
        directions = [Steps(self._mode, tuple(sizes), reverse) for reverse in (False, True)]
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = functional.dropout(x, self.dropout, self.training)
            outputs = []
            for direction, suffix in enumerate(self._suffixes(layer)):
                first = states[len(last_states)]
                y, last = recurrence.run(x, first, self._weights(suffix), directions[direction])
                outputs.append(y)
                last_states.append(last)
            x = ops.cat(outputs, 1) if self.bidirectional else outputs[0]
        if len(last_states) == 1:  # a copy, as the states must not keep all that is kept of the sequence
            return x, tuple(ops.clone(state).unsqueeze(0) for state in last_states[0])
        return x, tuple(ops.stack([states[k] for states in last_states]) for k in range(self.states))

    def extra_repr(self) -> str:
        arguments = [str(self.input_size), str(self.hidden_size)]
        defaults = {
            "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False,
            "proj_size": 0,
        }  # fmt: skip
        arguments += [f"{k}={getattr(self, k)}" for k, v in defaults.items() if getattr(self, k) != v]
        return ", ".join(arguments)


class RNN(RNNBase):
    """Elman RNN layers: ``h = tanh(x @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh)``.

    Args:
        input_size: how many features the input has.
        hidden_size: how many features the hidden state has.
        num_layers: how many layers there are; each takes the outputs of the layer before.
        nonlinearity: ``"tanh"`` or ``"relu"``.
        bias: whether there are biases.
        batch_first: whether inputs and outputs are (N, T, features) rather than (T, N, features).
        dropout: the probability with which outputs between layers become zero in training.
        bidirectional: whether each layer also runs from the end to the start, which doubles the features of
            the outputs.
        device, dtype: of the parameters; by default the default device and float32.

    Shape:
        Input (T, N, input_size), (T, input_size) or a packed sequence, and initial states of shape
        (num_layers * directions, N, hidden_size), zeros if not given. Output (T, N, directions *
        hidden_size) and the last states.

    Raises:
        ArgumentError: an argument is out of range.

    Example:
        >>> import dl4all as dl
        >>> outputs, h = dl.nn.RNN(3, 5, num_layers=2)(dl.zeros(7, 2, 3, device="cpu"))
        >>> outputs.shape, h.shape
        ((7, 2, 5), (2, 2, 5))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype
        )
        self.nonlinearity = _check_nonlinearity("RNN", nonlinearity)


class LSTM(_LstmStep, RNNBase):
    """LSTM layers: long short-term memory (Hochreiter and Schmidhuber, 1997).

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as for :class:`RNN`.
        proj_size: how many features a projection of the hidden state has (Sak et al., arXiv:1402.1128),
            fewer than `hidden_size`; 0 for no projection.

    Shape:
        As for :class:`RNN`; states are tuples (hidden, cell). The rows of weights are the gates input,
        forget, cell and output. With `proj_size` outputs and hidden states have that many features; cell
        states have `hidden_size`.

    Raises:
        ArgumentError: an argument is out of range.

    Example:
        >>> import dl4all as dl
        >>> outputs, (h, c) = dl.nn.LSTM(3, 5, bidirectional=True)(dl.zeros(7, 2, 3, device="cpu"))
        >>> outputs.shape, h.shape, c.shape
        ((7, 2, 10), (2, 2, 5), (2, 2, 5))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        if proj_size and not 0 < proj_size < hidden_size:
            raise ArgumentError(
                f"[LSTM] proj_size must be 0, for no projection, or less than hidden_size {hidden_size}, "
                f"got {proj_size}"
            )
        self.proj_size = proj_size  # parameters' shapes depend on it
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype
        )


class GRU(_GruStep, RNNBase):
    """GRU layers: gated recurrent units (Cho et al., arXiv:1406.1078).

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as for :class:`RNN`.

    Shape:
        As for :class:`RNN`. The rows of weights are the gates reset, update and new.

    Example:
        >>> import dl4all as dl
        >>> output, state = dl.nn.GRU(4, 8, batch_first=True)(dl.rand(2, 5, 4))
        >>> output.shape, state.shape
        ((2, 5, 8), (1, 2, 8))
    """


class RNNCellBase(_Recurrence):
    """Computes one time step per call.

    Example:
        >>> import dl4all as dl
        >>> isinstance(dl.nn.LSTMCell(2, 3), dl.nn.RNNCellBase)
        True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias)
        self._add_parameters(input_size)
        self._place(device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """The next states; without `hx`, those after states of zeros."""
        self._check_features(input, (1, 2))
        unbatched = input.ndim == 1
        x = input.unsqueeze(0) if unbatched else input
        if unbatched and hx is not None:
            hx = tuple(h.unsqueeze(0) for h in hx) if self.states > 1 else hx.unsqueeze(0)
        states = self._initial_states(hx, (x.shape[0],), x)
        states = recurrence.run_cell(x, states, self._weights(), self._mode)
        return self._hidden(tuple(s.squeeze(0) for s in states) if unbatched else states)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """One step of :class:`RNN`.

    Args:
        input_size: how many features the input has.
        hidden_size: how many features the hidden state has.
        bias: whether there are biases.
        nonlinearity: ``"tanh"`` or ``"relu"``.

    Shape:
        (N, input_size) and a state (N, hidden_size), or both without N, to the next state.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.RNNCell(4, 8)(dl.rand(2, 4), dl.zeros(2, 8)).shape
        (2, 8)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = _check_nonlinearity("RNNCell", nonlinearity)


class LSTMCell(_LstmStep, RNNCellBase):
    """One step of :class:`LSTM`.

    Args:
        input_size, hidden_size, bias: as for :class:`RNNCell`.

    Shape:
        (N, input_size) and states (hidden, cell) of shape (N, hidden_size), to the next states.

    Example:
        >>> import dl4all as dl
        >>> h, c = dl.nn.LSTMCell(3, 5)(dl.zeros(2, 3, device="cpu"))
        >>> h.shape, c.shape
        ((2, 5), (2, 5))
    """


class GRUCell(_GruStep, RNNCellBase):
    """One step of :class:`GRU`.

    Args:
        input_size, hidden_size, bias: as for :class:`RNNCell`.

    Shape:
        As for :class:`RNNCell`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.GRUCell(4, 8)(dl.rand(2, 4), dl.zeros(2, 8)).shape
        (2, 8)
    """


def _check_nonlinearity(name: str, nonlinearity: str) -> str:
    if nonlinearity not in ("tanh", "relu"):
        raise ArgumentError(f"[{name}] nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
    return nonlinearity
