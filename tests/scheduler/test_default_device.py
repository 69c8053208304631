"""Which device "auto" is."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Iterator

import pytest

import dl4all as dl
from dl4all.errors import UnknownDeviceError


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    yield
    dl.set_default_device(None)


def test_a_default_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_DEVICE", "cpu")
    assert dl.zeros(2).device is dl.device("cpu")
    dl.set_default_device(device)
    assert dl.zeros(2).device is dl.device(device)
    assert dl.zeros(2, device="cpu").device is dl.device("cpu")
    dl.set_default_device(None)
    assert dl.zeros(2).device is dl.device("cpu")
    with pytest.raises(UnknownDeviceError):
        dl.set_default_device("toaster:0")


def test_with_a_device(device: str) -> None:
    dl.set_default_device("cpu")
    seen = []
    with dl.device(device) as place:
        assert place is dl.device(device)
        assert dl.ones(2).device is place
        thread = threading.Thread(target=lambda: seen.append(dl.ones(2).device))
        thread.start()
        thread.join()
        with dl.device("cpu"):
            assert dl.ones(2).device is dl.device("cpu")
        assert dl.ones(2).device is place
        with pytest.raises(ZeroDivisionError), dl.device("cpu"):
            1 / 0  # noqa: B018
        assert dl.ones(2).device is place
    assert dl.ones(2).device is dl.device("cpu")
    assert seen == [dl.device("cpu")]  # other threads are not in the block


def test_networks_are_copied_and_pickled(device: str) -> None:
    net = dl.nn.Sequential(dl.nn.Linear(3, 2), dl.nn.BatchNorm1d(2)).to(device)
    x = dl.randn(5, 3, device=device)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert [type(p) for p in other.parameters()] == [dl.nn.Parameter] * 4
        assert all(p.requires_grad and p.device is dl.device(device) for p in other.parameters())
        assert other.eval()(x).tolist() == net.eval()(x).tolist()
        with dl.no_grad():
            other[0].weight.zero_()
        assert other(x).tolist() != net(x).tolist()
