"""What became of an entry of a database: how many of its calls are equal, refused, wrong or broken."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from dl4all.errors import Dl4allError
from lab.peer_databases.functions import Missing
from lab.torch_databases.comparison import Wrong, message

STATUSES = ("equal", "missing", "refused", "crashed", "wrong")
"""From good to bad: ``missing`` entries have no function in dl4all, ``refused`` calls raise an error of
``dl4all.errors`` or a TypeError, ``crashed`` ones any other error or end the process."""

EXAMPLES = 3
"""How many samples are kept for each reason."""


@dataclasses.dataclass
class Outcome:
    """The outcome of one entry."""

    name: str
    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    """Calls by status."""
    reasons: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    """By ``status: text``, how many calls and the first of them, in words."""
    calls: list[str] = dataclasses.field(default_factory=list)

    @contextlib.contextmanager
    def judging(self, what: str) -> Iterator[None]:
        """Judge one call.

        Args:
            what: is computed, for the report.

        Raises:
            Missing: dl4all has no such function.
        """
        try:
            yield
        except Missing:
            raise
        except Wrong as error:
            self.count("wrong", str(error), what)
        except (Dl4allError, TypeError, NotImplementedError) as error:
            self.count("refused", message(error), what)
        except Exception as error:  # noqa: BLE001 - whatever a call raises is its outcome
            self.count("crashed", message(error), what)
        else:
            self.counts["equal"] += 1

    def count(self, status: str, why: str, what: str = "") -> None:
        """Count a call that is not equal."""
        self.counts[status] += 1
        kept = self.reasons.setdefault(f"{status}: {why}", [0, []])
        kept[0] += 1
        if len(kept[1]) < EXAMPLES:
            kept[1].append(what)

    @property
    def status(self) -> str:
        """The worst of the calls'."""
        return max(self.counts, key=STATUSES.index, default="equal")

    def as_row(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status,
            "why": next((why for why in self.reasons if why.startswith(self.status)), ""),
            "samples": sum(self.counts.values()),
            "counts": dict(self.counts),
            "reasons": self.reasons,
            "notes": {},
        }


def brief(why: str) -> str:
    """A reason without the numbers of one sample, so that calls refused alike are counted together."""
    short = re.sub(r"\(?[(\[][-\d., ]*[)\]]", "(...)", why)
    return re.sub(r"(?<!\w)-?\d+(\.\d+)?(e-?\d+)?", "N", short)[:160]
