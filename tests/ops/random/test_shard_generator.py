"""The random numbers of some rows of a batch are those that the whole batch draws for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.random.generator import (
    Generator,
    MisalignedShard,
    ShardGenerator,
    State,
    default_generator,
    drawing_from,
)

STATES: list[State] = [(5, 0), (2**40 + 123, 2**32 - 100), (2**64 - 1, 2**64 - 3)]
DRAWS: dict[str, Callable[[int], dl.Tensor]] = {
    "uniform": lambda rows: dl.rand(rows, 4, device="cpu"),
    "normal": lambda rows: dl.randn(rows, 2, 6, device="cpu"),
    "uniform of float64": lambda rows: dl.rand(rows, 4, dtype="float64", device="cpu"),
    "bernoulli": lambda rows: dl.empty(rows, 8, device="cpu").bernoulli_(0.5),
    "integers": lambda rows: dl.randint(0, 1000, (rows, 4), device="cpu"),
    "dropout": lambda rows: dl.nn.functional.dropout(dl.ones(rows, 4, device="cpu"), 0.5),
}


def drawn(generator: Generator, rows: int) -> list[Any]:
    """Several draws, one after the other."""
    with drawing_from(generator):
        return [draw(rows).numpy().copy() for draw in DRAWS.values()]


@pytest.mark.parametrize("state", STATES)
def test_shards_draw_what_the_whole_batch_draws(state: State) -> None:
    total = 11
    whole = Generator()
    whole.set_state(state)
    expected = drawn(whole, total)
    for cuts in ([0, 11], [0, 1, 11], [0, 3, 4, 9, 11]):
        for start, stop in itertools.pairwise(cuts):
            shard = ShardGenerator(state, start, stop - start, total)
            for name, rows, array in zip(DRAWS, drawn(shard, stop - start), expected, strict=True):
                np.testing.assert_array_equal(rows, array[start:stop], err_msg=name)
            assert shard.get_state() == whole.get_state()
    assert all(np.ptp(array) > 0 for array in expected)


def test_what_belongs_to_no_rows_is_the_same_everywhere() -> None:
    """As many words whatever the batch."""
    whole = Generator(3)
    expected = drawn(whole, 7)
    for start, rows in ((0, 5), (5, 5)):
        shard = ShardGenerator((3, 0), start, rows, 10)
        with drawing_from(shard):
            np.testing.assert_array_equal(dl.rand(7, 4, device="cpu").numpy(), expected[0])


def test_a_shard_in_the_middle_of_a_counter_is_misaligned() -> None:
    for start in (1, 2, 3, 5):
        with pytest.raises(MisalignedShard), drawing_from(ShardGenerator((3, 0), start, 4, 16)):
            dl.rand(4, 3, device="cpu")
    for start, expected in ((4, 4), (8, 8)):
        with drawing_from(ShardGenerator((3, 0), start, 4, 16)):
            rows = dl.rand(4, 3, device="cpu").numpy()
        whole = dl.rand(16, 3, device="cpu", generator=Generator(3)).numpy()
        np.testing.assert_array_equal(rows, whole[expected : expected + 4])


def test_a_process_in_the_middle_of_a_counter_draws_numbers_of_its_own() -> None:
    """Others cannot move its first row. Its neighbours draw other numbers, and all go on alike."""
    found, states = [], set()
    for origin, start, rows in ((0, 0, 5), (5, 5, 4), (5, 9, 3), (12, 12, 4)):
        generator = ShardGenerator((3, 0), start, rows, 16, origin)
        with drawing_from(generator):
            found.append(dl.rand(rows, 3, device="cpu").numpy())
        states.add(generator.get_state())
    assert states == {(3, 12)}
    whole = dl.rand(16, 3, device="cpu", generator=Generator(3)).numpy()
    np.testing.assert_array_equal(found[0], whole[:5])
    np.testing.assert_array_equal(found[3], whole[12:])  # 36 numbers lie before it, nine counters
    drawn_rows = np.concatenate(found)
    assert len(np.unique(drawn_rows)) == drawn_rows.size
    with pytest.raises(MisalignedShard), drawing_from(ShardGenerator((3, 0), 6, 2, 16, 5)):
        dl.rand(2, 3, device="cpu")


def test_a_process_without_rows_draws_nothing_of_them() -> None:
    with drawing_from(ShardGenerator((3, 0), 8, 0, 16, 8)):
        assert dl.rand(0, 3, device="cpu").shape == (0, 3)


def test_a_misaligned_draw_leaves_the_generator_as_it_was() -> None:
    generator = ShardGenerator((3, 7), 1, 4, 16)
    with pytest.raises(MisalignedShard):
        generator.draw(12)
    assert generator.get_state() == (3, 7)


def test_a_generator_at_a_state_is_of_the_same_shard() -> None:
    """As checkpointed activations need it, which draw their numbers once more."""
    generator = ShardGenerator((3, 0), 4, 4, 16)
    with drawing_from(generator):
        state = default_generator().get_state()
        first = dl.rand(4, 3, device="cpu").numpy()
        with drawing_from(default_generator().at(state)):
            np.testing.assert_array_equal(dl.rand(4, 3, device="cpu").numpy(), first)


def test_only_the_thread_that_asked_draws_from_it() -> None:
    dl.manual_seed(1)
    before = default_generator()
    with drawing_from(ShardGenerator((3, 0), 4, 4, 16)):
        assert default_generator() is not before
        dl.rand(4, 4, device="cpu")
    assert default_generator() is before
    assert before.get_state() == (1, 0)
