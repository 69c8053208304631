"""Write docs/ops.md, the list of all ops, from their declarations.

python tools/ops_page.py [--check]
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import dl4all as dl
from dl4all.ops.elementwise import Elementwise
from dl4all.ops.op import REGISTRY, Op

PAGE = Path(__file__).parents[1] / "docs" / "ops.md"
HEAD = """# The ops

Written by `python tools/ops_page.py` from the ops' declarations; a test compares it with them.

Every op is declared once: a NumPy body, which the CPU runs and all tests compare with, and kernels for
devices. Most are at `dl.NAME`, as methods of tensors or in `dl.nn.functional`, where PyTorch has them;
all are in `dl.ops`. *Kernels for* are the dtypes that devices compute in. float16 is stored as such and
computed with in float32, on the device; with other dtypes an op goes through the host and says so once.
Each op that takes floats has a gradient unless it says "no", and gradients are made of ops, so that they
have gradients too. *Kernels* are the GLSL files in `shaders/`; an elementwise op is one expression in
one of three files. How fast they are: [performance.md](performance.md)."""


def dtypes(op: Op[...]) -> str:
    if isinstance(op, Elementwise):
        return ", ".join(op.by_dtype)
    return "" if op.kernel is None else ", ".join(op.kernel.dtypes)


def signature(function: Any) -> str:
    """Names and defaults, without types."""
    parameters = inspect.signature(function).parameters.values()
    return ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)


def first_sentence(function: Any) -> str:
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split()).replace("|", "\\|")


def op_row(op: Op[...]) -> str:
    files = sorted({shader.path for shader in op.kernel.shaders}) if op.kernel else []
    kernels = ", ".join(f"`{path.removesuffix('.comp')}`" for path in files)
    gradient = "no" if op.grad is None else "yes"
    call = f"`{op.name}({signature(op.body)})`"
    return f"| {call} | {first_sentence(op)} | {dtypes(op)} | {gradient} | {kernels} |"


def page() -> str:
    ops = sorted(REGISTRY.values(), key=lambda op: op.name)
    tables: list[tuple[str, list[Op[...]]]] = [
        ("Elementwise", [op for op in ops if isinstance(op, Elementwise)]),
        ("Others", [op for op in ops if not isinstance(op, Elementwise)]),
    ]
    text = [HEAD]
    for title, members in tables:
        text.append(f"\n## {title}\n\n| op | what it computes | kernels for | gradient | kernels |")
        text.append("|---|---|---|---|---|")
        text += [op_row(op) for op in members]
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
