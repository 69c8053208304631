"""Write docs/onnx-ops.md, the list of ONNX's operators, from the standard and the declarations.

python tools/onnx_ops_page.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import onnx

import dl4all.onnx.operators  # noqa: F401 - declares them
from dl4all.onnx.registry import OPERATORS
from dl4all.onnx.standard_functions import is_standard

PAGE = Path(__file__).parents[1] / "docs" / "onnx-ops.md"
HEAD = """# ONNX's operators

Written by `python tools/onnx_ops_page.py` from the standard and the declarations in
`dl4all/onnx/operators/`; a test compares it with them. How models are loaded: [ONNX](onnx.md).

*Own* are computed by dl4all's ops, in the opsets that are named, or in all. *Function* are computed as the
standard itself writes them with other operators. A model with any other operator is refused when it is
loaded, with a list of them."""


def newest_schemas() -> dict[str, Any]:
    """The operators of the main domain, by name."""
    opset = onnx.defs.onnx_opset_version()
    names = sorted({schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain})
    found = {}
    for name in names:
        try:
            found[name] = onnx.defs.get_schema(name, opset, "")
        except onnx.defs.SchemaError:  # pragma: no cover - of an operator that a later opset has removed
            continue
    return found


def computed_by(name: str, opset: int) -> str:
    declared = OPERATORS.get(("", name), [])
    if declared:
        ranges = {(one.since, one.until) for one in declared}
        first = min(since for since, _ in ranges)
        last = (
            None if any(until is None for _, until in ranges) else max(u for _, u in ranges if u is not None)
        )
        return "own" + (f", from {first} on" if first > 1 else "") + (f", up to {last}" if last else "")
    return "function" if is_standard("", name, opset) else "no"


def page() -> str:
    opset = onnx.defs.onnx_opset_version()
    rows = [(name, computed_by(name, opset)) for name in newest_schemas()]
    lines = [f"| `{name}` | {how} |" for name, how in rows]
    count = sum(how != "no" for _, how in rows)
    total = f"{count} of {len(rows)} operators of opset {opset}."
    return "\n".join([HEAD, "", total, "", "| operator | computed |", "|---|---|", *lines, ""])


def main() -> int:
    text = page()
    if "--check" in sys.argv:
        return int(PAGE.read_text() != text)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
