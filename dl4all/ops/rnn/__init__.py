"""Single steps of recurrent networks, and whole sequences."""

from __future__ import annotations

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.rnn.gru import gru_step as gru_step
from dl4all.ops.rnn.gru import gru_step_backward as gru_step_backward
from dl4all.ops.rnn.lstm import lstm_step as lstm_step
from dl4all.ops.rnn.lstm import lstm_step_backward as lstm_step_backward
from dl4all.ops.rnn.sequence import recurrent_sequence as recurrent_sequence
from dl4all.ops.rnn.sequence_backward import recurrent_sequence_backward as recurrent_sequence_backward

__all__ = [
    "gru_step",
    "gru_step_backward",
    "lstm_step",
    "lstm_step_backward",
    "recurrent_sequence",
    "recurrent_sequence_backward",
]
