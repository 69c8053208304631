"""Ops that lower layers call, each set where it is declared, in a higher layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dl4all.ops.core.op import Op


class Primitives:
    """Ops and functions that lower layers call. Each is set where it is declared, in a higher layer."""

    cast: Op[...]
    clone: Op[...]
    sum_to: Op[...]
    reshape: Callable[..., Any]
    write_results: Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any], Any], Any]
    in_place: Callable[[Callable[..., Any]], Callable[..., Any]]
    apply_in_place: Callable[[Op[...], list[Any], dict[str, Any]], Any]
    sizes_or_data: Callable[[tuple[Any, ...]], Any]
    to_sparse: Callable[..., Any]


primitives = Primitives()
