"""A dict that forgets what came first."""

from __future__ import annotations

from dl4all.runtime.bounded_dict import BoundedDict


def test_it_keeps_the_last_keys_that_came() -> None:
    kept = BoundedDict[int, str](3)
    for key in range(10):
        kept[key] = str(key)
        assert len(kept) == min(key + 1, 3)
    assert kept == {7: "7", 8: "8", 9: "9"}


def test_a_key_that_is_there_puts_no_other_out() -> None:
    kept = BoundedDict[str, int](2)
    for number, key in enumerate("ababab"):
        kept[key] = number
    assert kept == {"a": 4, "b": 5}


def test_entries_that_were_taken_out_make_room() -> None:
    kept = BoundedDict[str, int](2)
    kept["a"], kept["b"] = 1, 2
    assert kept.pop("a") == 1
    kept["c"] = 3
    assert kept == {"b": 2, "c": 3}
