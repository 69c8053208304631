"""Recurrent layers and cells: plain, LSTM and GRU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from dl4all import ops
from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn import functional, init
from dl4all.nn.module import Module, Parameter
from dl4all.nn.utils.rnn import PackedSequence
from dl4all.ops.rnn.gates import split_rows
from dl4all.ops.rnn.lstm import lstm_states
from dl4all.tensor.creation import zeros
from dl4all.tensor.tensor import Tensor

States = tuple[Tensor, ...]
"""What goes from step to step: the hidden state, and in a LSTM the cell behind it."""


class _Recurrence(Module):
    """What layers and cells have in common: one step."""

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
    def _outputs(self) -> int:
        """Features of the hidden state that is given out."""
        return self.proj_size or self.hidden_size

    def _add_parameters(self, inputs: int, suffix: str = "") -> None:
        rows, hidden = self.gates * self.hidden_size, self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, inputs), "weight_hh": (rows, self._outputs)}
        biases: dict[str, tuple[int, ...]] = {"bias_ih": (rows,), "bias_hh": (rows,)}
        projection: dict[str, tuple[int, ...]] = {"weight_hr": (self.proj_size, hidden)}
        for name, shape in (shapes | biases | (projection if self.proj_size else {})).items():
            wanted = name not in biases or self.bias
            parameter = Parameter(init.fan_in_uniform(shape, hidden)) if wanted else None
            setattr(self, name + suffix, parameter)

    def _step(self, gates_x: Any, states: States, weight: Any, bias: Any, projection: Any) -> States:
        gates_h = functional.linear(states[0], weight, bias)
        function = ops.tanh if self.nonlinearity == "tanh" else ops.relu
        return (function(gates_x + gates_h),)

    def _checked(self, given: Any, rows: tuple[int, ...], like: Tensor) -> States:
        """The initial states, zeros if there are none."""
        shapes = ((*rows, self._outputs), (*rows, self.hidden_size))[: self.states]
        if given is None:
            return tuple(zeros(shape, dtype=like.dtype, device=like.device) for shape in shapes)
        states = given if self.states > 1 else (given,)
        if not isinstance(states, (tuple, list)) or len(states) != self.states:
            raise ArgumentError(f"[{type(self).__name__}] expected the states as a tuple (hidden, cell)")
        for state, shape in zip(states, shapes, strict=True):
            if state.shape != shape:
                raise ShapeError(
                    f"[{type(self).__name__}] a state must have shape {shape}, got {state.shape}"
                )
        return tuple(states)

    def _given(self, states: States) -> Any:
        return states if self.states > 1 else states[0]

    def _check_features(self, x: Tensor, ranks: tuple[int, ...]) -> None:
        if x.ndim not in ranks or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"[{type(self).__name__}] expected an input of {' or '.join(map(str, ranks))} axes, the last "
                f"of size {self.input_size}, got {x.shape}"
            )


class _Lstm(_Recurrence):
    gates, states = 4, 2

    def _step(self, gates_x: Any, states: States, weight: Any, bias: Any, projection: Any) -> States:
        h, c = lstm_states(gates_x, functional.linear(states[0], weight, bias), states[1])
        return (h if projection is None else functional.linear(h, projection)), c


class _Gru(_Recurrence):
    gates = 3

    def _step(self, gates_x: Any, states: States, weight: Any, bias: Any, projection: Any) -> States:
        return (ops.gru_step(gates_x, functional.linear(states[0], weight, bias), states[0]),)


class _Layers(_Recurrence):
    """Layers of recurrences over whole sequences.

    Inside, sequences are always packed: rows of all time steps one behind the other. The input's share in
    the gates is one product for all of them.
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
    ) -> None:
        super().__init__(input_size, hidden_size, bias)
        if num_layers < 1:
            raise ArgumentError(f"[{type(self).__name__}] num_layers must be at least 1, got {num_layers}")
        if not 0 <= dropout <= 1:
            raise ArgumentError(
                f"[{type(self).__name__}] expected a probability from 0 to 1 for dropout, got {dropout}"
            )
        self.num_layers, self.batch_first = num_layers, batch_first
        self.dropout, self.bidirectional = dropout, bidirectional
        for layer in range(num_layers):
            for suffix in self._suffixes(layer):
                self._add_parameters(input_size if layer == 0 else self._outputs * self._directions, suffix)

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> tuple[str, ...]:
        return (f"_l{layer}", f"_l{layer}_reverse")[: self._directions]

    def flatten_parameters(self) -> None:
        """Nothing: is here because code for PyTorch calls it."""

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """Outputs of the last layer for all steps, and the states after the last one.

        Raises:
            ShapeError, ArgumentError
        """
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        self._check_features(input, (2, 3))
        alone = input.ndim == 2
        x = input.unsqueeze(1) if alone else input.swapaxes(0, 1) if self.batch_first else input
        steps, count = x.shape[:2]
        if not steps:
            raise ShapeError(f"[{type(self).__name__}] the input of shape {input.shape} has no time steps")
        if alone and hx is not None:
            hx = tuple(h.unsqueeze(1) for h in hx) if self.states > 1 else hx.unsqueeze(1)
        states = self._checked(hx, (self.num_layers * self._directions, count), x)
        y, found = self._run(ops.reshape(x, steps * count, self.input_size), [count] * steps, states)
        y = ops.reshape(y, steps, count, y.shape[1])
        if alone:
            return y.squeeze(1), self._given(tuple(s.squeeze(1) for s in found))
        return y.swapaxes(0, 1) if self.batch_first else y, self._given(found)

    def _packed(self, input: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        self._check_features(input.data, (2,))
        rows = (self.num_layers * self._directions, input.batch_sizes[0])
        states = self._checked(hx, rows, input.data)
        if input.sorted_indices is not None and hx is not None:
            states = tuple(ops.index_select(s, 1, input.sorted_indices) for s in states)
        y, found = self._run(input.data, input.batch_sizes, states)
        if input.unsorted_indices is not None:
            found = tuple(ops.index_select(s, 1, input.unsorted_indices) for s in found)
        return input._replace(data=y), self._given(found)

    def _run(self, x: Any, sizes: Sequence[int], states: States) -> tuple[Any, States]:
        """All layers over packed rows; `sizes` says how many of them belong to each step."""
        found: list[States] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = functional.dropout(x, self.dropout, self.training)
            outputs = []
            for direction, suffix in enumerate(self._suffixes(layer)):
                first = tuple(s[layer * self._directions + direction] for s in states)
                y, last = self._one(x, sizes, first, suffix, reverse=direction == 1)
                outputs.append(y)
                found.append(last)
            x = ops.cat(outputs, 1) if self.bidirectional else outputs[0]
        return x, tuple(ops.stack([states[k] for states in found]) for k in range(self.states))

    def _one(
        self, x: Any, sizes: Sequence[int], first: States, suffix: str, *, reverse: bool
    ) -> tuple[Any, States]:
        """One layer in one direction."""
        own = [getattr(self, n + suffix) for n in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")]
        own.append(getattr(self, f"weight_hr{suffix}") if self.proj_size else None)
        parts = split_rows(functional.linear(x, *own[:2]), sizes)
        count = sizes[-1] if reverse else sizes[0]
        states = _rows(first, 0, count)
        finished: list[States] = []
        outputs: list[Any] = []
        for part in reversed(parts) if reverse else parts:
            size = part.shape[0]
            if size < count:  # some sequences have come to their end
                finished.append(_rows(states, size, count))
                states = _rows(states, 0, size)
            elif size > count:  # or, from behind, begin here
                states = _joined([states, _rows(first, count, size)])
            count = size
            states = self._step(part, states, *own[2:])
            outputs.append(states[0])
        y = ops.cat(outputs[::-1] if reverse else outputs)
        return y, _joined([states, *reversed(finished)])

    def extra_repr(self) -> str:
        shown = [str(self.input_size), str(self.hidden_size)]
        defaults = {
            "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False,
            "proj_size": 0,
        }  # fmt: skip
        shown += [f"{k}={getattr(self, k)}" for k, v in defaults.items() if getattr(self, k) != v]
        return ", ".join(shown)


def _rows(states: States, start: int, end: int) -> States:
    return tuple(s if (start, end) == (0, s.shape[0]) else s[start:end] for s in states)


def _joined(parts: list[States]) -> States:
    return parts[0] if len(parts) == 1 else tuple(ops.cat(same) for same in zip(*parts, strict=True))


class RNN(_Layers):
    """Layers of ``h = tanh(x @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh)``.

    Args:
        input_size: features of the input.
        hidden_size: features of the hidden state.
        num_layers: each works on the outputs of the one before.
        nonlinearity: ``"tanh"`` or ``"relu"``.
        bias: whether there are biases.
        batch_first: whether inputs and outputs are (N, T, features) rather than (T, N, features).
        dropout: the probability with which outputs between layers become zero in training.
        bidirectional: whether each layer also goes from the end to the start; outputs then have twice the
            features.

    Shape:
        Input (T, N, input_size), (T, input_size) or a packed sequence, and initial states of shape
        (num_layers * directions, N, hidden_size), zeros if not given. Output (T, N, directions *
        hidden_size) and the last states.

    Raises:
        ArgumentError: an argument makes no sense.

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
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        self.nonlinearity = _nonlinearity("RNN", nonlinearity)


class LSTM(_Lstm, _Layers):
    """Layers with long short-term memory (Hochreiter and Schmidhuber, 1997).

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as for :class:`RNN`.
        proj_size: features that a further matrix makes of the hidden state's (Sak et al., arXiv:1402.1128),
            fewer than `hidden_size`; 0 leaves them as they are.

    Shape:
        As for :class:`RNN`; states are tuples (hidden, cell). The rows of weights are the gates input,
        forget, cell and output. With `proj_size` outputs and hidden states have that many features, and
        cells `hidden_size`.

    Raises:
        ArgumentError: an argument makes no sense.

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
    ) -> None:
        if proj_size and not 0 < proj_size < hidden_size:
            raise ArgumentError(
                f"[LSTM] proj_size must be 0, for no projection, or less than hidden_size {hidden_size}, "
                f"got {proj_size}"
            )
        self.proj_size = proj_size  # parameters' shapes depend on it
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)


class GRU(_Gru, _Layers):
    """Layers of gated recurrent units (Cho et al., arXiv:1406.1078).

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as for :class:`RNN`.

    Shape:
        As for :class:`RNN`. The rows of weights are the gates reset, update and new.
    """


class _Cell(_Recurrence):
    """One step at a time."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__(input_size, hidden_size, bias)
        self._add_parameters(input_size)

    def forward(self, input: Any, hx: Any = None) -> Any:
        self._check_features(input, (1, 2))
        alone = input.ndim == 1
        x = input.unsqueeze(0) if alone else input
        if alone and hx is not None:
            hx = tuple(h.unsqueeze(0) for h in hx) if self.states > 1 else hx.unsqueeze(0)
        states = self._checked(hx, (x.shape[0],), x)
        own = {name: getattr(self, name) for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")}
        gates_x = functional.linear(x, own["weight_ih"], own["bias_ih"])
        found = self._step(gates_x, states, own["weight_hh"], own["bias_hh"], None)
        return self._given(tuple(s.squeeze(0) for s in found) if alone else found)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(_Cell):
    """One step of :class:`RNN`.

    Args:
        input_size: features of the input.
        hidden_size: features of the hidden state.
        bias: whether there are biases.
        nonlinearity: ``"tanh"`` or ``"relu"``.

    Shape:
        (N, input_size) and a state (N, hidden_size), or both without N, to the next state.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"
    ) -> None:
        super().__init__(input_size, hidden_size, bias)
        self.nonlinearity = _nonlinearity("RNNCell", nonlinearity)


class LSTMCell(_Lstm, _Cell):
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


class GRUCell(_Gru, _Cell):
    """One step of :class:`GRU`.

    Args:
        input_size, hidden_size, bias: as for :class:`RNNCell`.

    Shape:
        As for :class:`RNNCell`.
    """


def _nonlinearity(name: str, given: str) -> str:
    if given not in ("tanh", "relu"):
        raise ArgumentError(f"[{name}] nonlinearity must be 'tanh' or 'relu', got {given!r}")
    return given
