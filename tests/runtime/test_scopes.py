"""Settings within blocks, and blocks that do not come to their end."""

from __future__ import annotations

import threading

import pytest

from dl4all.runtime.scopes import ScopedSetting, assigned


@pytest.fixture
def setting() -> ScopedSetting[int]:
    return ScopedSetting(0)


def test_blocks_within_blocks(setting: ScopedSetting[int]) -> None:
    with assigned(setting, 1):
        with assigned(setting, 2):
            assert setting.value == 2
        assert setting.value == 1
        with pytest.raises(ValueError, match="inside"), assigned(setting, 3):
            raise ValueError("inside")
        assert setting.value == 1
    assert setting.value == 0


def test_a_block_that_is_garbage_has_ended(setting: ScopedSetting[int]) -> None:
    block = assigned(setting, 1)
    block.__enter__()
    assert setting.value == 1
    del block
    assert setting.value == 0


def test_an_outer_block_ends_what_is_within(setting: ScopedSetting[int]) -> None:
    """And the inner one changes nothing when it is closed later."""
    with assigned(setting, 1):
        inner = assigned(setting, 2)
        inner.__enter__()
    assert setting.value == 0
    with assigned(setting, 5):
        del inner
        assert setting.value == 5
    assert setting.value == 0


def test_another_thread_closes_a_block(setting: ScopedSetting[int]) -> None:
    """Garbage collection may come to it anywhere."""
    blocks = [assigned(setting, 1)]
    blocks[0].__enter__()
    seen = list[int]()

    def close() -> None:
        with assigned(setting, 7):
            blocks.clear()
            seen.append(setting.value)

    thread = threading.Thread(target=close)
    thread.start()
    thread.join()
    assert seen == [7]
    assert setting.value == 0


def test_threads_have_values_of_their_own(setting: ScopedSetting[int]) -> None:
    seen = list[int]()
    with assigned(setting, 1):
        thread = threading.Thread(target=lambda: seen.append(setting.value))
        thread.start()
        thread.join()
    assert seen == [0]
