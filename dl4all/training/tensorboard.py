"""A callback that writes the numbers of a training run for TensorBoard."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from dl4all.errors import BackendMissingError
from dl4all.training.history import Row


class TensorBoard:
    """A callback for :class:`dl4all.Trainer` that writes every epoch's numbers as curves.

    ``tensorboard --logdir FOLDER`` shows them over the epochs.

    Args:
        folder: the folder of the event file; TensorBoard draws runs in neighbouring folders together.

    Raises:
        BackendMissingError: tensorboard is not installed.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.MLP(2, hidden=[4], num_classes=1)
        >>> trainer = dl.Trainer(
        ...     net, dl.nn.MSELoss(), dl.optim.SGD(net.parameters(), lr=0.1), device="cpu", progress=False,
        ...     callbacks=[dl.training.TensorBoard("curves")],
        ... )
        >>> x, y = dl.rand(8, 2), dl.rand(8, 1)
        >>> len(trainer.fit(dl.data.DataLoader(dl.data.TensorDataset(x, y), 4, device="cpu"), epochs=2))
        2
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise BackendMissingError(
                "[TensorBoard] the package is not installed: pip install tensorboard"
            ) from None
        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(str(folder))

    def __call__(self, trainer: Any, row: Row) -> None:
        numbers = {name: value for name, value in row.items() if name != "epoch"}
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        summary = self._summary(value=values)
        self._writer.add_event(self._event(step=row["epoch"], wall_time=time.time(), summary=summary))
        self._writer.flush()

    def close(self) -> None:
        """Close the file; nothing can be written afterwards."""
        self._writer.close()
