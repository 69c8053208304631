"""torchft's lighthouse, by which the processes of elastic launches find each other."""

from __future__ import annotations

import os
import signal
import sys

os.environ.setdefault("RUST_LOG", "error")  # else its log says every heartbeat
from torchft.coordination import LighthouseServer

HEARTBEAT_TIMEOUT = 1000  # ms without a sign of life after which a process has ended
JOIN_TIMEOUT = 60_000  # ms that others wait for one that lives and is not done with its step


def serve(address: str) -> LighthouseServer:
    """A lighthouse at an address, for as long as it is referred to."""
    return LighthouseServer(
        bind=address,
        min_replicas=1,
        join_timeout_ms=JOIN_TIMEOUT,
        quorum_tick_ms=20,
        heartbeat_timeout_ms=HEARTBEAT_TIMEOUT,
    )


def main() -> None:
    """Serve at the address that the argument names, until a signal ends this."""
    _server = serve(sys.argv[1])
    signal.pause()


if __name__ == "__main__":
    main()
