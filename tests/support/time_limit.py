"""A hard limit of the time that a test may take, for tests that would wait for ever if they failed."""

from __future__ import annotations

import functools
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest


def time_limit(seconds: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a test fail that is not done by then, with the lines where its threads wait."""

    def limited(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            raised: list[BaseException] = []

            def body() -> None:
                try:
                    test(*args, **kwargs)
                except BaseException as error:  # noqa: BLE001  # raised again below
                    raised.append(error)

            thread = threading.Thread(target=body, name=test.__name__, daemon=True)
            thread.start()
            thread.join(seconds)
            if thread.is_alive():
                names = {t.ident: t.name for t in threading.enumerate()}
                stacks = [
                    f"{names.get(ident)}:\n{''.join(traceback.format_stack(frame)[-3:])}"
                    for ident, frame in sys._current_frames().items()
                ]
                pytest.fail(f"not done within {seconds} seconds\n" + "\n".join(stacks), pytrace=False)
            if raised:
                raise raised[0]

        return run

    return limited
