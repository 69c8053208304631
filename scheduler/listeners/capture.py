"""Captures: listeners that note what a function asks of a device, for the graph compiler to replay."""

from __future__ import annotations

import threading
from typing import ClassVar

from dl4all.scheduler import listeners


class Capture(listeners.Listener):
    """Base class of listeners of which something else is made to take the place of the calls."""

    replays: ClassVar[bool] = True


lock = threading.RLock()
"""Held by the thread that captures; it may capture again what it makes of that."""
