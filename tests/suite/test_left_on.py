"""What tests leave switched on is seen where it happens."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import dl4all as dl
from tests.support import left_on


def torn_down(nextitem: Any = None) -> None:
    item = SimpleNamespace(nodeid="the test", path="a file")
    steps: Any = left_on.pytest_runtest_teardown(item, nextitem)  # type: ignore[arg-type]
    next(steps)
    with pytest.raises(StopIteration):
        next(steps)


def test_a_setting_and_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_on, "AT_FIRST", left_on.state() | {"threads": []})
    torn_down()
    dl.set_default_dtype(dl.float64)
    try:
        with pytest.raises(pytest.fail.Exception, match=r"the test leaves .*the default dtype.*float64"):
            torn_down()
        torn_down()  # said once: the tests behind it are not to blame
    finally:
        dl.set_default_dtype(dl.float32)
    with pytest.raises(pytest.fail.Exception, match="float32"):
        torn_down()
    monkeypatch.setattr(left_on, "PATIENCE", 0.01)
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="left behind")
    thread.start()
    try:
        with pytest.raises(pytest.fail.Exception, match="left behind"):
            torn_down()
    finally:
        end.set()
        thread.join()


def test_what_a_fixture_of_the_module_switched_on_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_on, "AT_FIRST", left_on.state() | {"threads": []})
    definition = SimpleNamespace(scope="module")
    info = SimpleNamespace(name2fixturedefs={"opened": [definition]})
    with dl.device("cpu"):
        torn_down(SimpleNamespace(path="a file", _fixtureinfo=info))
        with pytest.raises(pytest.fail.Exception):
            torn_down(SimpleNamespace(path="another file", _fixtureinfo=info))
