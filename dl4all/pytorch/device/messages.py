"""Messages between two processes, whose tensors lie on ``dlall``, by way of the CPU."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Sequence
from typing import Any

import torch

_last = threading.local()


class Message(torch.distributed.Work):
    """A message under way, done once it has been waited for.

    gloo's own can be waited for only once: a second wait is for another message, which nobody sends.

    Args:
        boxed: the message of the CPU.
        hosts: its tensors, which must live until it is done.
        received: tensors on ``dlall``, and those that came for them.
    """

    def __init__(
        self,
        boxed: torch.ScriptObject,
        hosts: Sequence[torch.Tensor],
        received: Sequence[tuple[torch.Tensor, torch.Tensor]],
    ) -> None:
        super().__init__()
        self._work: Any = torch.distributed.Work.unbox(boxed)
        self._hosts, self._received = hosts, received
        self._is_done = False
        _last.message = self  # PyTorch finds this object by its C++ part, as long as it lives

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        """Wait until the message has been sent, or has come and been copied to ``dlall``."""
        if not self._is_done:
            self._work.wait(timeout)
            for tensor, host in self._received:
                tensor.copy_(host)
            self._is_done, self._hosts, self._received = True, (), ()
        return True

    def is_completed(self) -> bool:
        """Whether it has been waited for."""
        return self._is_done

    def _source_rank(self) -> int:
        return int(self._work._source_rank())
