"""Launch plans: calls like earlier ones give what they would have without, and where there may be none."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import dl4all as dl
import dl4all.nn.functional as F
from dl4all.ops.core.kernels.launch_plan import REFUSED
from dl4all.ops.core.op import Example, Op
from dl4all.scheduler.monitor.counters import forget_plans
from tests.support.operands import LAYOUTS, draw, generator
from tests.support.subcases import each_example

ROUNDS = 3  # the second call makes the plan, the third follows it
PLACE = "vulkan:0"


def plans() -> list[Any]:
    return [plan for plan in dl.device(PLACE).plans._plans.values() if plan is not REFUSED]


def drawn(*names: object, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return generator(*names).standard_normal(shape).astype(np.float32)


@pytest.mark.sampled(2)
@each_example(
    "layout", LAYOUTS, fits=lambda op, case: not any(shape and 0 in shape for shape in case.shapes), most=2
)
def test_repeated_calls_compute_the_same(op: Op[...], case: Example, layout: str) -> None:
    """With other elements each time, exactly what calls without plans compute."""

    def run(turn: int) -> Any:
        rng = generator(op.name, str(case), turn)
        operands = [
            None if shape is None else LAYOUTS[layout](draw(op, name, rng, shape), PLACE)[0]
            for name, shape in zip(op.arrays, case.shapes, strict=True)
        ]
        return op(*operands, **dict(case.arguments)).numpy()

    planned = [run(turn) for turn in range(ROUNDS)]
    for turn in range(ROUNDS):
        forget_plans()
        np.testing.assert_array_equal(planned[turn], run(turn))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w: x + w.sum(),
        lambda x, w: x @ w,
        lambda x, w: F.softmax(x, -1),
        lambda x, w: F.layer_norm(x, (7,)),
        lambda x, w: x.sum(0),
        lambda x, w: F.max_pool2d(x.reshape(1, 1, 5, 7), 2),
    ],
)
def test_plans_are_followed(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = dl.device(PLACE)
    for turn in range(2):
        call(
            dl.tensor(drawn(turn, shape=(5, 7)), device=PLACE),
            dl.tensor(drawn(turn, 1, shape=(7, 3)), device=PLACE),
        )
    x, w = dl.tensor(drawn(3, shape=(5, 7)), device=PLACE), dl.tensor(drawn(4, shape=(7, 3)), device=PLACE)
    with monkeypatch.context() as patched:
        patched.setattr(type(device), "launch", lambda *_: pytest.fail("no plan was followed"))
        result = call(x, w)
    expected = call(x.to("cpu"), w.to("cpu"))
    np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_numbers_and_their_types_are_told_apart() -> None:
    x = dl.tensor(drawn("numbers", shape=(13,)), device=PLACE)
    whole = dl.tensor(np.arange(13, dtype=np.int32), device=PLACE)
    for number in (2, 2.5, True, -0.0, 1e39, 3):
        for _ in range(2):
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal((x * number).numpy(), x.to("cpu").numpy() * np.float32(number))
                if number < 1e38:
                    alpha = dl.add(x, x, alpha=number).numpy()
                    np.testing.assert_allclose(alpha, dl.add(x.to("cpu"), x.to("cpu"), alpha=number).numpy())
    for number in (2, 2.5, True, 2**31 - 1):
        for _ in range(2):
            result, expected = whole + number, whole.to("cpu") + number
            assert result.dtype == expected.dtype
            np.testing.assert_array_equal(result.numpy(), expected.numpy())
    for _ in range(2):
        with pytest.raises(dl.errors.ArgumentError, match="does not fit"):
            whole + 2**31
    small = dl.tensor(np.arange(13, dtype=np.uint8), device=PLACE)
    for number in (1, 2, 3):
        np.testing.assert_array_equal((small + number).numpy(), np.arange(13) + number)
    with pytest.raises(dl.errors.ArgumentError, match="does not fit"):
        small + 256


def test_arguments_are_told_apart_by_type_and_sign() -> None:
    x = dl.tensor(drawn("arguments", shape=(3, 5)), device=PLACE)
    for keepdim in (False, True, False, True):
        for dim in (0, 1, (0, 1), None):
            for _ in range(ROUNDS):
                expected = x.to("cpu").sum(dim, keepdim)
                result = x.sum(dim, keepdim)
                assert result.shape == expected.shape
                np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_shared_memory_is_told_apart() -> None:
    x, y = (dl.tensor(drawn("shared", i, shape=(7, 7)), device=PLACE) for i in range(2))
    for _ in range(ROUNDS):
        for a, b in ((x, x), (x, y), (y, x), (y, y)):
            expected = a.to("cpu").numpy() @ b.to("cpu").numpy()
            np.testing.assert_allclose((a @ b).numpy(), expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal((a - b).numpy(), a.to("cpu").numpy() - b.to("cpu").numpy())


def test_changed_filters_are_transformed_again() -> None:
    x = dl.tensor(drawn("image", shape=(1, 16, 12, 12)), device=PLACE)
    w = dl.tensor(drawn("filters", shape=(16, 16, 3, 3)), device=PLACE)
    for turn in range(6):
        for _ in range(1 + turn):  # filters that stay are transformed once, after some uses
            expected = F.conv2d(x.to("cpu"), w.to("cpu"), None, 1, 1)
            np.testing.assert_allclose(
                F.conv2d(x, w, None, 1, 1).numpy(), expected.numpy(), rtol=1e-4, atol=1e-4
            )
        w.mul_(-1.5)


def test_random_numbers_differ() -> None:
    x = dl.ones(64, 64, device=PLACE)
    masks = [F.dropout(x, 0.5).numpy() for _ in range(4)]
    numbers = [dl.rand(64, device=PLACE).numpy() for _ in range(4)]
    for seen in (masks, numbers):
        assert not any(np.array_equal(seen[0], other) for other in seen[1:])


def test_indices_out_of_range_are_found_each_time() -> None:
    table = dl.tensor(drawn("table", shape=(5, 3)), device=PLACE)
    for index in ([0, 4], [1, 2], [4, 4], [3, 0]):
        F.embedding(dl.tensor(index, device=PLACE), table).numpy()
    for _ in range(2):
        with pytest.raises(dl.errors.ArgumentError, match="5"):
            F.embedding(dl.tensor([0, 5], device=PLACE), table).numpy()


def test_fallbacks_are_counted_each_time() -> None:
    x = dl.tensor(drawn("fallback", shape=(5,)), device=PLACE).to("float64")
    dl.fallback.reset()
    with dl.fallback.policy("silent"):
        for _ in range(4):
            x.exp()
    assert sum(row.calls for row in dl.fallback.report() if row.op == "exp") == 4
    with dl.fallback.policy("error"), pytest.raises(dl.errors.FallbackError):
        x.exp()


def test_in_place_results_keep_their_memory_and_count_as_changes() -> None:
    x = dl.tensor(drawn("in place", shape=(11,)), device=PLACE)
    expected, storage = x.numpy().copy(), x.storage
    for turn in range(4):
        version = storage.version
        x.mul_(1.5).add_(x, alpha=turn)
        expected = expected * np.float32(1.5)
        expected = expected + np.float32(turn) * expected
        assert x.storage is storage
        assert storage.version == version + 2
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6)


def test_matmul_precision_forgets_plans() -> None:
    x = dl.tensor(drawn("precision", shape=(5, 5)), device=PLACE)
    for _ in range(ROUNDS):
        x @ x
    assert plans()
    dl.set_float32_matmul_precision("highest")
    assert not plans()


def test_programs_that_are_freed_take_plans_along() -> None:
    x = dl.tensor(drawn("programs", shape=(5,)), device=PLACE)
    x.exp()
    assert plans()
    programs = dl.device(PLACE)._programs
    most, programs._most = programs._most, 1
    try:
        x.log()  # makes room
    finally:
        programs._most = most
    np.testing.assert_allclose(x.exp().numpy(), np.exp(x.numpy()), rtol=1e-6)


def test_threads_make_and_follow_plans_at_once() -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(30):
            x = dl.tensor(drawn(number, turn, shape=(3 + turn % 5, 5)), device=PLACE)
            result = F.softmax(x @ x.T, -1).numpy()
            host = x.numpy() @ x.numpy().T
            weights = np.exp(host - host.max(-1, keepdims=True))
            expected = weights / weights.sum(-1, keepdims=True)
            if not np.allclose(result, expected, rtol=1e-4, atol=1e-5):
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_followed_plans_count_changes(device: str) -> None:
    x = dl.rand(7, device=device)
    for _ in range(5):
        before = x.storage.version
        x.mul_(0.5)
        assert x.storage.version == before + 1
