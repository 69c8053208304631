"""Write the generated parts of docs/op_codes.md: the table of op codes, a listing and a trace.

python tools/op_codes_page.py [--check]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np

import dl4all as dl
from dl4all.graph.op_codes.assembler import assemble
from dl4all.graph.op_codes.disassembler import disassemble
from dl4all.graph.op_codes.instruction import words_of
from dl4all.graph.op_codes.interpreter import VARIANTS
from dl4all.graph.op_codes.opcode import OPCODES
from dl4all.graph.op_codes.simulator import steps
from dl4all.graph.op_codes.translator import lower
from dl4all.graph.tracing.trace import trace

PAGE = Path(__file__).parents[1] / "docs" / "op_codes.md"


def table() -> str:
    """A row for each op code."""
    rows = ["| code | name | kind | operands | result | GLSL |", "|---|---|---|---|---|---|"]
    for code, one in enumerate(OPCODES):
        least = one.operands - one.optional
        operands = f"{least} or {one.operands}" if one.optional else str(one.operands)
        glsl = f"`{one.glsl}`" if one.kind in ("arithmetic", "function") else ""
        rows.append(f"| {code} | `{one.name}` | {one.kind} | {operands} | {one.description} | {glsl} |")
    return "\n".join(rows)


def listing() -> str:
    """The program of a small training step."""
    dl.manual_seed(0)
    model = dl.nn.Sequential(dl.nn.Linear(2, 3), dl.nn.Tanh(), dl.nn.Linear(3, 1)).to("null:0")
    optimizer = dl.optim.SGD(model.parameters(), lr=0.1)

    def step(x: dl.Tensor, y: dl.Tensor) -> dl.Tensor:
        optimizer.zero_grad()
        loss = dl.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = dl.ones(4, 2, device="null:0"), dl.ones(4, 1, device="null:0")
    step(x, y)
    [program] = lower(trace(step, x, y), VARIANTS[-1]).programs
    return f"```text\n{disassemble(words_of(program))}```"


def traced(text: str) -> str:
    """What the simulator says of the program on the page."""
    arena, outside = np.zeros(32, np.float32), np.array([1, -2, 3, 0.5], np.float32)
    result = np.zeros(2, np.float32)
    lines = []
    for step in steps(assemble(text), arena, [outside, result], [2.0]):
        lines.append(step.text)
        lines += [f"    reads  {np.array2string(np.squeeze(o), precision=4)}" for o in step.operands]
        lines.append(f"    result {np.array2string(step.result, precision=4)}")
    body = re.sub(r"\n +\[", " [", "\n".join(lines))
    return f"```text\n{body}\n```"


def page(text: str) -> str:
    """The page with its generated parts as they should be."""
    program = re.search(r"```text\n(.*?)```", text, re.S)
    assert program is not None
    for name, part in (("table", table()), ("trace", traced(program.group(1))), ("listing", listing())):
        text = re.sub(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)",
            lambda found, part=part: f"{found.group(1)}{part}\n{found.group(2)}",  # type: ignore[misc]
            text,
            flags=re.S,
        )
    return text


if __name__ == "__main__":
    before = PAGE.read_text("utf-8")
    after = page(before)
    if "--check" in sys.argv and before != after:
        sys.exit("docs/op_codes.md is out of date; run python tools/op_codes_page.py")
    if before != after:
        PAGE.write_text(after, "utf-8")
