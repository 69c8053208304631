"""Networks that ``benchmarks/training.py`` and its relatives train, by kind; `CASES` has all of them."""

from __future__ import annotations

from benchmarks.networks import attention, convolutions, decoders, lookups, perceptrons, recurrences
from benchmarks.networks.case import Case

CASES: dict[str, Case] = {
    name: case
    for kind in (perceptrons, convolutions, decoders, recurrences, attention, lookups)
    for name, case in kind.CASES.items()
}
