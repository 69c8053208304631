"""Write docs/ops.md, the list of all ops, from their declarations.

python tools/ops_page.py [--check]
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import dl4all as dl
from dl4all.ops.core.op import REGISTRY, Op
from dl4all.ops.elementwise.declare import Elementwise

DOCS = Path(__file__).parents[1] / "docs"
PAGE, MEASURED = DOCS / "ops.md", DOCS / "measured" / "ops.json"
HEAD = """# The ops

Written by `python tools/ops_page.py` from the ops' declarations; a test compares it with them.

Every op is declared once: a NumPy body, which the CPU runs and all tests compare with, and kernels for
devices. Most are at `dl.NAME`, as methods of tensors or in `dl.nn.functional`, where PyTorch has them;
all are in `dl.ops`. *Kernels for* are the dtypes that devices compute in; with others an op goes through
the host and says so once. float16 and bfloat16 are computed with in float32 and rounded once. Kernels for
"floats" read and write all three; "float32" alone says that operands of 16 bits are widened before, on
the device.
Each op that takes floats has a gradient unless it says "no", and gradients are made of ops, so that they
have gradients too. *Kernels* are the GLSL files in `shaders/`; an elementwise op is one expression in
one of three files. How fast they are: [performance.md](performance.md).

*Share of floor* is the time in which the device copies the bytes that an op must read and write at least,
or for a product or convolution does the multiplications and additions in registers, over the time that
the op takes; "-" where it was not measured. Those here are from {device},
{driver}, with tensors of {megabytes} MB; measure them with
`python benchmarks/bandwidth.py --device vulkan:0 --json docs/measured/ops.json`. On a software driver
they are shares of processor time, and its copy is a `memcpy`, which no kernel comes near
([why](performance.md#elementwise-ops-and-reductions)); what Winograd's algorithm saves counts as done."""


def dtypes(op: Op[...]) -> str:
    if isinstance(op, Elementwise):
        return ", ".join(op.by_dtype)
    if op.kernel is None:
        return ""
    halves = op.kernel.halves != "widened"
    names = ("floats" if halves and name == "float32" else name for name in op.kernel.dtypes)
    return ", ".join(name for name in names if name not in ("float16", "bfloat16"))


def signature(function: Any) -> str:
    """Names and defaults, without types."""
    parameters = inspect.signature(function).parameters.values()
    return ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)


def first_sentence(function: Any) -> str:
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split()).replace("|", "\\|")


def percent(share: float) -> str:
    return f"{100 * share:.{0 if share >= 0.01 else 1}f} %"


def op_row(op: Op[...], shares: dict[str, float]) -> str:
    files = sorted({shader.path for shader in op.kernel.shaders}) if op.kernel else []
    kernels = ", ".join(f"`{path.removesuffix('.comp')}`" for path in files)
    gradient = "no" if op.grad is None else "yes"
    call = f"`{op.name}({signature(getattr(dl.ops, op.name))})`"
    share = percent(shares[op.name]) if op.name in shares else "-"
    return f"| {call} | {first_sentence(op)} | {dtypes(op)} | {gradient} | {share} | {kernels} |"


def page() -> str:
    ops = sorted(REGISTRY.values(), key=lambda op: op.name)
    tables: list[tuple[str, list[Op[...]]]] = [
        ("Elementwise", [op for op in ops if isinstance(op, Elementwise)]),
        ("Others", [op for op in ops if not isinstance(op, Elementwise)]),
    ]
    measured = json.loads(MEASURED.read_text())
    text = [HEAD.format(**measured)]
    for title, members in tables:
        text.append(
            f"\n## {title}\n\n| op | what it computes | kernels for | gradient | share of floor | kernels |"
        )
        text.append("|---|---|---|---|---|---|")
        text += [op_row(op, measured["shares"]) for op in members]
    text.append("\n## Functions made of ops\n\n| function | what it computes |\n|---|---|")
    composed = [(name, getattr(dl.ops, name)) for name in sorted(dl.ops.__all__) if name not in REGISTRY]
    text += [
        f"| `{name}({signature(function)})` | {first_sentence(function)} |"
        for name, function in composed
        if inspect.isfunction(function)
    ]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == page() else f"{PAGE} is out of date; run python tools/ops_page.py")
    PAGE.write_text(page())
