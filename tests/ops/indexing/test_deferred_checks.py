"""Indices that kernels check: the error is that of a check at once, and comes with the next wait."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, Dl4allError
from dl4all.nn import functional as F
from tests.support.operands import generator

TIMEOUT = 60  # seconds that a thread may take
X = generator("deferred checks").normal(size=(5, 4)).astype(np.float32)
Make = Callable[[Any], Any]

# Each takes a function that makes a tensor on the device, and an index, of which one element is out of range.
OPS: dict[str, Callable[[Make, Any], Any]] = {
    "embedding": lambda t, i: F.embedding(i, t(X)),
    "index_select": lambda t, i: dl.index_select(t(X), 0, i),
    "index_add": lambda t, i: dl.index_add(t(X), 0, i, t(X[:3])),
    "index_copy": lambda t, i: dl.index_copy(t(X), 0, i, t(X[:3])),
    "index_fill": lambda t, i: dl.index_fill(t(X), 0, i, 2.0),
    "index_put": lambda t, i: dl.index_put(t(X), (i,), t(X[:3]), accumulate=True),
    "gather": lambda t, i: dl.gather(t(X), 0, i.reshape(3, 1)),
    "scatter": lambda t, i: dl.scatter(t(X), 0, i.reshape(3, 1), 7.0),
    "scatter of a tensor": lambda t, i: dl.scatter(t(X), 0, i.reshape(3, 1), t(-X)),
    "scatter_add": lambda t, i: dl.scatter_add(t(X), 0, i.reshape(3, 1), t(X)),
    "take": lambda t, i: dl.take(t(X[:, 0]), i),
    "take_along_dim": lambda t, i: dl.take_along_dim(t(X), i.reshape(3, 1), 0),
    "take_along_dim, flat": lambda t, i: dl.take_along_dim(t(X[:, 0]), i),
    "getitem": lambda t, i: t(X)[i],
    "getitem of two": lambda t, i: t(X)[i, t(np.array([[0], [-1]]))],
    "getitem behind a slice": lambda t, i: t(X.T.copy())[1:, i],
    "setitem": lambda t, i: _assigned(t(X), i, t(X[:3])),
    "one_hot": lambda t, i: F.one_hot(i, 5),
    "cross_entropy": lambda t, i: F.cross_entropy(t(X.repeat(2, 1)[:3, :5]), i, reduction="none"),
    "cross_entropy, mean": lambda t, i: F.cross_entropy(t(X.repeat(2, 1)[:3, :5]), i),
    "cross_entropy, weighted": lambda t, i: F.cross_entropy(t(X.repeat(2, 1)[:3, :5]), i, t(np.abs(X[:, 0]))),
    "nll_loss": lambda t, i: F.nll_loss(t(X.repeat(2, 1)[:3, :5]), i),
    "multi_margin_loss": lambda t, i: F.multi_margin_loss(t(X.repeat(2, 1)[:3, :5]), i, 2, 0.5, t(X[:, 0])),
}
FROM_THE_END = {"index_fill", "index_put", "take", "take_along_dim, flat", "setitem"}


def _assigned(tensor: Any, key: Any, value: Any) -> Any:
    tensor[key] = value
    return tensor


def takes_negative(name: str) -> bool:
    return name in FROM_THE_END or name.startswith("getitem")


def error_of(call: Callable[[], Any]) -> Dl4allError:
    with pytest.raises(Dl4allError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_results(name: str, dtype: str, device: str) -> None:
    """Of indices on the device as of those on the host."""
    place = dl.device(device)
    for index in (
        [3, 0, 3],
        [1, 2, 4],
        *([[-1, 0, -5]] if takes_negative(name) and dtype != "uint8" else []),
    ):
        array = np.array(index, dtype)
        expected = OPS[name](lambda a: dl.tensor(a, device="cpu"), dl.tensor(array, device="cpu")).numpy()
        downloaded = place.counters.downloaded
        result = OPS[name](lambda a: dl.tensor(a, device=device), dl.tensor(array, device=device))
        assert place.counters.downloaded == downloaded  # nothing was read on the host
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-6)
    dl.synchronize(device)


@pytest.mark.parametrize("name", OPS)
def test_errors(name: str, device: str) -> None:
    """The first index that is out of range, in the words of a check at once, and the line."""
    place = dl.device(device)
    for index in ([0, 5, 9], [1, 2, -6], [2**33, 0, 1]):
        run = _runner(name, device, np.array(index))
        with dl.debug(checks="immediate"):
            at_once = error_of(run)
        assert not at_once.deferred
        if place.is_host:
            assert str(error_of(run)) == str(at_once)
            continue
        run()
        line = inspect.getsourcelines(OPS[name])[1]
        deferred = error_of(lambda: dl.synchronize(device))
        assert type(deferred) is type(at_once) is ArgumentError
        assert deferred.deferred
        assert str(deferred).startswith(f"{at_once} (called at {__file__}:")
        called = int(str(deferred).rpartition(":")[2].rstrip(")"))
        assert called == line or name == "setitem"
        dl.synchronize(device)  # it is raised once


def _runner(name: str, device: str, index: Any) -> Callable[[], Any]:
    tensor = dl.tensor(index, device=device)
    return lambda: OPS[name](lambda a: dl.tensor(a, device=device), tensor)


def wrong(device: str) -> dl.Tensor:
    """What an op made of an index that is out of range."""
    return F.embedding(dl.tensor([1, 7], device=device), dl.tensor(X, device=device))


WAITS: dict[str, Callable[[str], Any]] = {
    "item": lambda device: wrong(device).sum().item(),
    "numpy": lambda device: wrong(device).numpy(),
    "tolist": lambda device: wrong(device).tolist(),
    "to the host": lambda device: wrong(device).to("cpu"),
    "repr": lambda device: repr(wrong(device)),
    "bool": lambda device: bool(wrong(device).sum() > 0),
    "synchronize": lambda device: _synchronized(wrong(device)),
    "synchronize the device": lambda device: wrong(device).device.synchronize(),
    "download": lambda device: _downloaded(wrong(device)),
    "backward": lambda device: _gradient(device),
    "another tensor": lambda device: (wrong(device), (dl.ones(3, device=device) * 2).tolist()),
}


def _synchronized(tensor: dl.Tensor) -> None:
    dl.synchronize()


def _downloaded(tensor: dl.Tensor) -> Any:
    return tensor.device.copies.download_later(tensor.storage, tensor.storage.nbytes).wait(TIMEOUT)


def _gradient(device: str) -> Any:
    table = dl.tensor(X, device=device, requires_grad=True)
    F.embedding(dl.tensor([1, 7], device=device), table).sum().backward()
    return table.grad.numpy()


@pytest.mark.parametrize("wait", WAITS)
def test_whoever_waits_raises_it(wait: str, device: str) -> None:
    error = error_of(lambda: WAITS[wait](device))
    assert str(error).startswith("[embedding] index 7 is out of range for an axis of size 5")
    right = F.embedding(dl.tensor([1, 4], device=device), dl.tensor(X, device=device))
    np.testing.assert_array_equal(right.numpy(), X[[1, 4]])  # the device goes on working


@pytest.mark.parametrize("wait", ["event", "stream"])
def test_waiting_for_a_stream(wait: str, device: str) -> None:
    stream = dl.Stream(device)
    made = stream.submit(lambda: _caught(lambda: wrong(device)))
    event = stream.record_event()

    def ask() -> Any:
        reached = event.synchronize(TIMEOUT) if wait == "event" else stream.synchronize(TIMEOUT)
        at_once = made.result()
        if isinstance(at_once, Exception):  # on the host
            raise at_once
        return reached

    assert "index 7 is out of range" in str(error_of(ask))
    assert stream.submit(lambda: (dl.ones(2, device=device) * 3).tolist()).result() == [3.0, 3.0]
    stream.close()


def _caught(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except ArgumentError as error:
        return error


def test_the_first_of_several_errors(device: str) -> None:
    place = dl.device(device)
    x = dl.tensor(X, device=device)
    if place.is_host:
        pytest.skip("each raises at once")
    many = np.arange(20_000) % 5
    many[[7_777, 12_345, 150]] = (77, 99, 11)
    x[dl.tensor(many, device=device)]
    F.embedding(dl.tensor([50], device=device), x)
    assert str(error_of(lambda: dl.synchronize(device))).startswith("[index] index 11 is out of range")
    dl.synchronize(device)


def test_two_threads(device: str) -> None:
    """Every error is raised, by one of those who wait, and both go on."""
    place, rounds, caught = dl.device(device), 20, list[str]()
    failed = list[BaseException]()

    def work(number: int) -> None:
        try:
            table = dl.tensor(X, device=device)
            for step in range(rounds):
                index = [1, 100 * (number + 1) + step] if step % 4 == 0 else [1, 2]
                try:
                    found = F.embedding(dl.tensor(index, device=device), table).numpy()
                    if step % 4:
                        np.testing.assert_array_equal(found, X[index])
                except ArgumentError as error:
                    caught.append(str(error))
        except BaseException as error:  # noqa: BLE001  # the test asks for it
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    assert not failed
    left = _caught(place.synchronize)
    assert left is None or "index" in str(left)
    assert 1 <= len(caught) <= rounds // 2
    assert all("[embedding] index " in message for message in caught)
    np.testing.assert_array_equal(
        F.embedding(dl.tensor([3], device=device), dl.tensor(X, device=device)), X[[3]]
    )


def test_a_gradient_of_many_rows(device: str) -> None:
    """Several invocations add up the rows of one index, in a fixed order; those of padding are left out."""
    random = generator("many rows")
    for count, rows, columns in ((70, 3, 4), (1500, 2, 3), (5000, 300, 4)):
        table, index = random.normal(size=(rows, columns)).astype(np.float32), random.integers(0, rows, count)
        weights = random.normal(size=(count, columns)).astype(np.float32)
        for padding in (None, 1):
            gradients = []
            for _ in range(2):
                weight = dl.tensor(table, device=device, requires_grad=True)
                found = F.embedding(dl.tensor(index, device=device), weight, padding)
                (found * dl.tensor(weights, device=device)).sum().backward()
                gradients.append(weight.grad.numpy())
            expected = np.zeros((rows, columns))
            np.add.at(expected, index, weights.astype(np.float64))
            if padding is not None:
                expected[padding] = 0
            np.testing.assert_allclose(gradients[0], expected, rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(gradients[0], gradients[1])


def test_the_last_of_equal_indices_stays(device: str) -> None:
    index = generator("last").integers(0, 6, 400)
    values = np.arange(400, dtype=np.float32)
    expected = np.full(7, -1, np.float32)
    expected[index] = values
    x = dl.full((7,), -1.0, device=device)
    x[dl.tensor(index, device=device)] = dl.tensor(values, device=device)
    np.testing.assert_array_equal(x.numpy(), expected)


def test_an_index_that_changes_after_the_op(device: str) -> None:
    index = dl.tensor([1, 3], device=device)
    table = dl.tensor(X, device=device, requires_grad=True)
    found = F.embedding(index, table)
    index.fill_(0)
    found.sum().backward()
    expected = np.zeros_like(X)
    expected[[1, 3]] = 1
    np.testing.assert_array_equal(table.grad.numpy(), expected)


def test_indices_on_the_host_are_checked_at_once(device: str) -> None:
    x = dl.tensor(X, device=device)
    for index in ([7], np.array([7]), dl.tensor([7], device="cpu")):
        error = error_of(lambda index=index: x[index])  # type: ignore[misc]
        assert not error.deferred
        assert "index 7 is out of range" in str(error)


def test_a_negative_variance(device: str) -> None:
    variance = dl.tensor([1.0, -1.0], device=device)
    mean = dl.tensor([1.0, 2.0], device=device)
    message = error_of(lambda: F.gaussian_nll_loss(mean, mean, variance).item())
    assert str(message).startswith("[gaussian_nll_loss] a variance is negative")
    assert F.gaussian_nll_loss(mean, mean + 1, variance.abs()).item() == pytest.approx(0.5)
