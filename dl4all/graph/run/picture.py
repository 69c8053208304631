"""Graphs as pictures: one HTML page with an SVG drawing, a chart of memory, and what passes have done.

Nodes lie below those whose results they read. Those that stand for several are coloured, each with a colour
of its own, and list their parts. Pointing at a node shows its operands, commands and the line of the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from dl4all.allocator.planner import lower_bound, plan
from dl4all.graph.ir.graph import Graph, Node, bindings_of
from dl4all.graph.ir.stand_ins import flops
from dl4all.graph.ir.text import node_lines
from dl4all.graph.run.executable import lifetimes

WIDTH, GAP = 190, 24  # of a node, and between nodes
LINE = 15  # height of a line of text
MOST_PARTS = 12  # that are listed
MOST_CHARACTERS = 25  # of a line
CHART_WIDTH, CHART_HEIGHT = 900, 180
HUE_STEP = 137.5  # degrees, the golden angle: neighbours differ

STYLE = """
body { font: 14px system-ui, sans-serif; margin: 24px; color: #222; background: #fff }
svg { display: block; margin: 16px 0 } text { font: 12px ui-monospace, monospace; fill: #222 }
.edge { fill: none; stroke: #bbb } .small { fill: #777; font-size: 10px }
.node rect { stroke: #888; rx: 4 } .node:hover rect { stroke: #000; stroke-width: 2 }
td { padding-right: 24px }
"""


class Box(NamedTuple):
    """The place of a drawn box: its middle, its top, and its height."""

    x: float
    y: float
    height: int


def show(graph: Graph, path: str | Path | None = None) -> str:
    """Draw a graph.

    Args:
        graph: any.
        path: of an HTML file to write it to, if there is one.

    Returns:
        The page, which needs nothing else.

    >>> from dl4all.graph.tracing.trace import trace
    >>> import dl4all as dl
    >>> page = show(trace(lambda x: x.relu(), dl.ones(3, device="null:0")))
    >>> page.splitlines()[0], "float32[3] = relu" in page
    ('<!DOCTYPE html>', True)
    """
    nodes = (*graph.preamble, *graph.nodes)
    moved = sum(map(moved_bytes, nodes))
    commands = sum(len(node.commands) for node in graph.nodes)
    facts = [
        ("nodes", f"{len(graph.nodes)}, {len(graph.preamble)} more in the preamble"),
        ("commands", str(commands)),
        ("moved", amount(moved, "B")),
        ("computed", amount(sum(map(flops, nodes)), "FLOP")),
        *((f"pass {name}", note) for name, note in graph.notes.items()),
    ]
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts)
    page = "\n".join(
        (
            "<!DOCTYPE html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(graph.device)}</title>',
            f"<style>{STYLE}</style></head><body>",
            f"<h1>Graph on {escape(graph.device)}</h1><table>{rows}</table>",
            _drawing(graph, nodes),
            _memory_chart(graph),
            "</body></html>\n",
        )
    )
    if path is not None:
        Path(path).write_text(page, "utf-8")
    return page


def moved_bytes(node: Node) -> int:
    """The bytes that a node's commands bind: what they read and write if they look at each once."""
    return sum(piece.nbytes for command in node.commands for piece in set(bindings_of(command)))


def amount(number: float, unit: str) -> str:
    """A number for readers.

    >>> amount(0, "B"), amount(2048, "B"), amount(3_500_000, "FLOP")
    ('0 B', '2.05 kB', '3.5 MFLOP')
    """
    for prefix in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g} {prefix}{unit}"
        number /= 1000
    return f"{number:.3g} T{unit}"


# The drawing


def _drawing(graph: Graph, nodes: Sequence[Node]) -> str:
    """Boxes and the values that go from one to the other."""
    sources = _sources(nodes)
    boxes = _placed(nodes, sources)
    width = max((box.x for box in boxes), default=0) + WIDTH / 2 + GAP
    height = max((box.y + box.height for box in boxes), default=0) + GAP
    parts = [f'<svg width="{width:.0f}" height="{height:.0f}" role="img" aria-label="the nodes">']
    for position, box in enumerate(boxes):
        for source in sources[position]:
            above = boxes[source]
            bottom, middle = above.y + above.height, (above.y + above.height + box.y) / 2
            parts.append(
                f'<path class="edge" d="M{above.x:.0f} {bottom:.0f}C{above.x:.0f} {middle:.0f} '
                f'{box.x:.0f} {middle:.0f} {box.x:.0f} {box.y:.0f}"/>'
            )
    fused = 0
    details = node_lines(graph)
    for node, box, lines in zip(nodes, boxes, details, strict=True):
        colour = "#f6f6f6"
        if node.parts:
            colour, fused = f"hsl({fused * HUE_STEP % 360:.0f} 70% 85%)", fused + 1
        parts.append(_box(node, box, colour, lines))
    return "\n".join((*parts, "</svg>"))


def _sources(nodes: Sequence[Node]) -> list[list[int]]:
    """The positions of the nodes whose values each node reads."""
    made = {value: position for position, node in enumerate(nodes) for value in node.writes}
    return [
        sorted({made[value] for value in node.reads if made.get(value, position) < position})
        for position, node in enumerate(nodes)
    ]


def _placed(nodes: Sequence[Node], sources: Sequence[Sequence[int]]) -> list[Box]:
    """Each node below those that it reads from, and where it can be right below them."""
    layers: list[list[int]] = []
    depth: list[int] = []
    for position in range(len(nodes)):
        depth.append(1 + max((depth[source] for source in sources[position]), default=-1))
        layers.extend([] for _ in range(depth[-1] + 1 - len(layers)))
        layers[depth[-1]].append(position)
    boxes = [Box(0, 0, 0)] * len(nodes)
    y = float(GAP)
    for layer in layers:
        wanted = {position: _mean(boxes[source].x for source in sources[position]) for position in layer}
        right = float(GAP)
        for position in sorted(layer, key=lambda one: (wanted[one], one)):
            x = max(right + WIDTH / 2, wanted[position])
            right = x + WIDTH / 2 + GAP
            boxes[position] = Box(x, y, LINE * len(_labels(nodes[position])) + 8)
        y += max(boxes[position].height for position in layer) + GAP
    return boxes


def _mean(numbers: Iterable[float]) -> float:
    found = list(numbers)
    return sum(found) / len(found) if found else 0.0


def _labels(node: Node) -> list[str]:
    """The lines of text in a node's box: its name, type, parts and work."""
    labels = [node.name.rpartition("/")[2]]
    if node.result is not None:
        labels.append(f"{node.result.dtype}{list(node.result.shape)}")
    labels += [f"· {part.name}" for part in node.parts[:MOST_PARTS]]
    if len(node.parts) > MOST_PARTS:
        labels.append(f"· and {len(node.parts) - MOST_PARTS} more")
    work = amount(moved_bytes(node), "B")
    return [*labels, f"{work}, {amount(count, 'FLOP')}" if (count := flops(node)) else work]


def _box(node: Node, box: Box, colour: str, lines: Sequence[str]) -> str:
    """One node; pointing at it shows its lines of the graph's text."""
    left = box.x - WIDTH / 2
    texts = []
    labels = _labels(node)
    for number, label in enumerate(labels):
        small = ' class="small"' if number == len(labels) - 1 else ""
        shown = label if len(label) <= MOST_CHARACTERS else f"{label[: MOST_CHARACTERS - 1]}…"
        texts.append(
            f'<text{small} x="{left + 6:.0f}" y="{box.y + LINE * (number + 1):.0f}">{escape(shown)}</text>'
        )
    return (
        f'<g class="node"><title>{escape(chr(10).join(lines))}</title><rect x="{left:.0f}" y="{box.y:.0f}" '
        f'width="{WIDTH}" height="{box.height}" fill="{colour}"/>{"".join(texts)}</g>'
    )


# Memory


def alive_bytes(graph: Graph) -> list[int]:
    """The bytes of temporaries that are alive at each node."""
    alive = [0] * len(graph.nodes)
    for lifetime in lifetimes(graph, graph.nodes).values():
        for position in range(lifetime.first, lifetime.last + 1):
            alive[position] += lifetime.nbytes
    return alive


def _memory_chart(graph: Graph) -> str:
    """Bytes over the nodes, with the lower bound of all plans and what the plan takes."""
    alive = alive_bytes(graph)
    needed = list(lifetimes(graph, graph.nodes).values())
    if not needed:
        return "<p>No temporaries.</p>"
    planned, bound = plan(needed).nbytes, lower_bound(needed)
    most = max(planned, bound)

    def y(nbytes: float) -> float:
        return CHART_HEIGHT * (1 - nbytes / most)

    step = CHART_WIDTH / len(alive)
    steps = "".join(f"V{y(nbytes):.1f}H{(i + 1) * step:.1f}" for i, nbytes in enumerate(alive))
    lines = "".join(
        f'<path d="M0 {y(nbytes):.1f}H{CHART_WIDTH}" stroke="{colour}" stroke-dasharray="4"/>'
        for nbytes, colour in ((bound, "#c33"), (planned, "#333"))
    )
    return (
        f"<h2>Memory of temporaries</h2><p>alive at the worst node, which no plan can do without: "
        f"{amount(bound, 'B')} (red); in the plan's arena: {amount(planned, 'B')} (black)</p>"
        f'<svg width="{CHART_WIDTH}" height="{CHART_HEIGHT}" role="img" aria-label="bytes alive">'
        f'<path d="M0 {CHART_HEIGHT}{steps}V{CHART_HEIGHT}Z" fill="#9bc"/>{lines}</svg>'
    )
