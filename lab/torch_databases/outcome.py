"""What became of an entry of a database."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from dl4all.errors import DeviceError, FallbackError
from dl4all.pytorch.device.storage.memory import ON_CPU_ONLY
from lab.torch_databases.comparison import Wrong, message

STATUSES = ("native", "refused", "sparse", "error", "wrong", "crashed")
"""From good to bad. With the fallback on, ``native`` entries are those that are right; ``sparse`` ones need
tensors that are not strided, which raise a DeviceError."""

REASON = re.compile(r"\[(aten::[^\]]+)\] runs on the CPU \((.*)\), and", re.DOTALL)


@dataclasses.dataclass
class Outcome:
    """The outcome of one entry."""

    name: str
    status: str = "native"
    why: str = ""
    samples: int = 0
    """Calls whose results were compared."""
    notes: dict[str, str] = dataclasses.field(default_factory=dict)
    """What differs and is not wrong, by kind: ``strides``, ``accepts``, ``variants``."""

    def worsen(self, status: str, why: str) -> None:
        """Take a status if it is worse than what there is."""
        if STATUSES.index(status) > STATUSES.index(self.status):
            self.status, self.why = status, why

    def note(self, kind: str, text: str) -> None:
        """Keep the first note of each kind."""
        self.notes.setdefault(kind, text)

    @contextlib.contextmanager
    def judging(self, what: str, *, variant: bool = False) -> Iterator[None]:
        """Judge what happens inside.

        Args:
            what: is computed, for the message.
            variant: whether being refused is only noted.
        """
        try:
            yield
        except FallbackError as error:
            if variant:
                self.note("variants", f"{what}: {reason(error)}")
            else:
                self.worsen("refused", reason(error))
        except Wrong as error:
            self.worsen("wrong", f"{error} ({what})")
        except DeviceError as error:
            self.worsen("sparse" if ON_CPU_ONLY in str(error) else "error", f"{message(error)} ({what})")
        except Exception as error:  # noqa: BLE001 - whatever an op raises is its outcome
            self.worsen("error", f"{message(error)} ({what})")

    def as_row(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def reason(error: FallbackError) -> str:
    """The op that fell back, and why."""
    found = REASON.search(str(error))
    return f"{found[1]}: {' '.join(found[2].split())}" if found else message(error)
