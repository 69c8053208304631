"""What a test leaves switched on in its process, which the tests behind it would pay for.

A listener, a setting or a thread that outlives its test makes others fail, late and elsewhere. So the state
of the process is looked at after each test, when its fixtures are gone, and the test that changed it fails.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import default
from dl4all.ops.core.vmap_hook import batching
from dl4all.ops.linalg.matmul_precision import get_float32_matmul_precision
from dl4all.runtime import op_regions
from dl4all.runtime.profiler import recorder
from dl4all.scheduler import check_mode, listeners
from dl4all.scheduler.device import current
from dl4all.scheduler.device.name import entered


def state() -> dict[str, Any]:
    """Listeners and settings of this process, by name."""
    own = tape.state
    return {
        "listeners": dict(listeners.active),
        "a profile": recorder.active,
        "regions of ops": op_regions.watched,
        "batched tensors": dict(batching),
        "gradients": (own.enabled, own.detect_anomaly, own.in_vmap, own.recompute_hook, own.observer),
        "the default dtype": default.dtype,
        "the default device": (current._default, tuple(entered.stack)),
        "the precision of products": get_float32_matmul_precision(),
        "checks of indices": check_mode._checks in (None, "deferred"),
    }


PATIENCE = 5.0  # seconds that threads have to end, after what they were to do is done
OTHERS: set[threading.Thread] = set()
"""The threads of pytest and its plugins, which were there before the first test."""


def lasting_threads() -> list[str]:
    """The threads that the end of the process would wait for, and that do not end by themselves."""
    lasting = []
    for thread in set(threading.enumerate()) - OTHERS - {threading.current_thread(), threading.main_thread()}:
        if not thread.daemon:
            thread.join(PATIENCE)
            lasting += [thread.name] * thread.is_alive()
    return lasting


AT_FIRST: dict[str, Any] = {}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Compare with how it was before the first test."""
    yield
    found = state() | {"threads": lasting_threads()}
    changed = {name: value for name, value in found.items() if value != AT_FIRST.setdefault(name, value)}
    if changed and not _shares_fixtures(item, nextitem):
        AT_FIRST.update(changed)  # one test is to blame
        pytest.fail(f"{item.nodeid} leaves {changed} switched on", pytrace=False)


def pytest_collection_finish() -> None:
    """Note how it is before the first test."""
    OTHERS.update(threading.enumerate())
    AT_FIRST.update(state() | {"threads": []})


def _shares_fixtures(item: pytest.Item, nextitem: Any) -> bool:
    """Whether a fixture of the module lives on, which may have switched something on for all of its tests."""
    return (
        nextitem is not None
        and nextitem.path == item.path
        and any(
            definitions[-1].scope in ("module", "session")
            for definitions in nextitem._fixtureinfo.name2fixturedefs.values()
        )
    )
