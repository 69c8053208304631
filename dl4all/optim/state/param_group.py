"""Parameter groups: dicts that know when an option was set."""

from __future__ import annotations

from typing import Any


class ParamGroup(dict[str, Any]):
    """The parameters of a group under ``"params"``, and its options.

    ``writes`` counts assignments: a compiled step takes the options as they are at each call, so it must know
    whether the step itself sets them, be it to the value that they have.

    >>> group = ParamGroup(lr=0.1)
    >>> group["lr"] = 0.1
    >>> group, group.writes
    ({'lr': 0.1}, 1)
    """

    __slots__ = ("writes",)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.writes = 0

    def __setitem__(self, name: str, option: Any) -> None:
        self.writes += 1
        super().__setitem__(name, option)

    def update(self, *args: Any, **options: Any) -> None:
        """Set several options."""
        self.writes += 1
        super().update(*args, **options)

    def __ior__(self, options: Any) -> ParamGroup:  # type: ignore[override,misc]  # dict's own sets them in C
        self.update(options)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return ParamGroup, (dict(self),)
