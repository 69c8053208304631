"""The committed figures, one line of JSON for each kernel, and the FMA shares that there were at first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lab.kernel_figures.collection import ROOT, Collection
from lab.kernel_figures.figures import COLUMNS, LOOP_COLUMNS, from_row, to_row

FILE = ROOT / "docs" / "measured" / "gpu_kernels.json"

Shares = dict[str, dict[str, float]]
"""The FMA share of each target, by family."""


def read(file: Path = FILE) -> tuple[dict[str, Collection], Shares]:
    """The committed figures by family, and the FMA shares that the first ones had."""
    if not file.exists():
        return {}, {}
    document = json.loads(file.read_text("utf-8"))
    made = {
        name: Collection(name, compiled=facts["compiled"], driver=facts["driver"], hardware=facts["hardware"],
                         failures=facts["failures"])
        for name, facts in document["families"].items()
    }  # fmt: skip
    for name, record in document["kernels"].items():
        for family, row in record["figures"].items():
            made[family].kernels[name] = from_row(row)
            made[family].used_by[name] = record["used_by"]
    return made, document["before"]


def write(collections: Iterable[Collection], before: Shares, file: Path = FILE) -> None:
    """Write figures so that a kernel's are one line, and a change of one kernel one line of a diff."""
    made = sorted(collections, key=lambda collection: collection.family)
    kernels: dict[str, dict[str, Any]] = {}
    for collection in made:
        for name, found in collection.kernels.items():
            record = kernels.setdefault(name, {"used_by": collection.used_by[name], "figures": {}})
            record["figures"][collection.family] = to_row(found)
    families = {
        c.family: {"driver": c.driver, "hardware": c.hardware, "compiled": c.compiled, "failures": c.failures}
        for c in made
    }
    head = {"columns": [*COLUMNS, *LOOP_COLUMNS], "families": families, "before": before}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_lines(head, kernels), "utf-8")


def _lines(head: Mapping[str, Any], kernels: Mapping[str, Any]) -> str:
    start = "".join(f"{json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items())
    rows = (f"{json.dumps(name)}: {json.dumps(kernels[name])}" for name in sorted(kernels))
    return f'{{\n{start}"kernels": {{\n' + ",\n".join(rows) + "\n}\n}\n"
