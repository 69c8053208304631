"""The printed form of tensors: the settings of ``dl.set_printoptions``."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import BFLOAT16

__all__ = ["set_printoptions"]

DEFAULT: dict[str, Any] = {
    "precision": 4, "threshold": 200, "edgeitems": 3, "linewidth": 75, "sci_mode": None,
}  # fmt: skip
PROFILES: dict[str, dict[str, Any]] = {
    "default": DEFAULT,
    "short": {**DEFAULT, "precision": 2, "threshold": 100, "edgeitems": 2},
    "full": {**DEFAULT, "threshold": math.inf},
}

_options = dict(DEFAULT)


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: Literal["default", "short", "full"] | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed.

    Args:
        precision: digits after the point.
        threshold: from how many elements on only the edges are shown.
        edgeitems: how many elements an edge has.
        linewidth: characters of a line.
        profile: sets them all: ``"default"``, ``"short"``, or ``"full"``, which shows every element.
        sci_mode: always (True) or never (False) in powers of ten; None chooses by the numbers.

    Raises:
        ArgumentError: the profile is unknown.

    Example:
        >>> import dl4all as dl
        >>> dl.set_printoptions(precision=2)
        >>> dl.tensor(3.14159)
        tensor(3.14)
        >>> dl.set_printoptions(profile="default")
    """
    if profile is not None:
        if profile not in PROFILES:
            raise ArgumentError(
                f"[set_printoptions] expected a profile of {', '.join(PROFILES)}, got {profile!r}"
            )
        _options.update(PROFILES[profile])
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    _options.update({name: value for name, value in given.items() if value is not None})
    _options["sci_mode"] = sci_mode


def text_of(elements: npt.NDArray[Any], prefix: str) -> str:
    """Elements as they stand in the ``repr`` of a tensor."""
    options: dict[str, Any] = {}
    if elements.dtype == BFLOAT16:
        elements = elements.astype(np.float32)  # whose digits NumPy chooses by what it is told
    digits, scientific = _options["precision"], _options["sci_mode"]
    if scientific and elements.dtype.kind == "f":
        options["formatter"] = {"float_kind": lambda number: f"{number:.{digits}e}"}
    elif scientific is False:
        options["suppress_small"] = True
    threshold = elements.size if _options["threshold"] == math.inf else int(_options["threshold"])
    return np.array2string(
        elements,
        separator=", ",
        prefix=prefix,
        threshold=threshold,
        precision=digits,
        edgeitems=_options["edgeitems"],
        max_line_width=_options["linewidth"],
        **options,
    )
