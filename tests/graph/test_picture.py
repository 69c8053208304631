"""Pictures of graphs: well-formed, complete, and with the right amounts."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dl4all.allocator.planner import lower_bound
from dl4all.graph import show
from dl4all.graph.ir.graph import Graph
from dl4all.graph.ir.parser import parse_graph
from dl4all.graph.ir.stand_ins import flops
from dl4all.graph.passes.pipeline import run
from dl4all.graph.run.executable import lifetimes
from dl4all.graph.run.picture import alive_bytes, amount, moved_bytes
from tests.support.traced_graphs import CASES, traced


def _drawing(page: str) -> ElementTree.Element:
    """The drawing of the nodes, which is also XML."""
    return ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + len("</svg>")])


@pytest.mark.parametrize("case", CASES)
def test_each_node_has_a_box_of_its_own(case: str) -> None:
    graph = run(traced(case))
    groups = _drawing(show(graph)).findall("g")
    assert len(groups) == len(graph.preamble) + len(graph.nodes)
    places = []
    for group in groups:
        [box] = group.findall("rect")
        places.append([float(box.attrib[name]) for name in ("x", "y", "width", "height")])
    for (ax, ay, aw, ah), (bx, by, bw, bh) in combinations(places, 2):
        assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay


def test_values_go_down() -> None:
    drawing = _drawing(show(traced("training gpt")))
    edges = [path.attrib["d"] for path in drawing.findall("path")]
    assert len(edges) > 150
    for edge in edges:
        numbers = [float(number) for number in re.findall(r"[\d.]+", edge)]
        assert numbers[1] < numbers[-1]


def test_kernels_of_several_nodes_have_colours() -> None:
    graph = run(traced("training mlp"))
    fused = sum(bool(node.parts) for node in graph.nodes)
    page = show(graph)
    assert fused > 0
    assert len(set(re.findall(r'fill="(hsl[^"]+)"', page))) == fused
    assert page.count("· ") == sum(len(node.parts) for node in graph.nodes)


def test_pointing_at_a_node_shows_its_commands_and_line() -> None:
    [title, *_] = _drawing(show(traced("forward mlp"))).findall("g/title")
    assert title.text is not None
    assert "linear(%0.0: float32[7, 13]" in title.text
    assert "launch linalg/" in title.text
    assert "traced_graphs.py:" in title.text


def test_the_page_is_written(tmp_path: Path) -> None:
    graph = run(traced("forward mlp"))
    page = show(graph, tmp_path / "graph.html")
    assert (tmp_path / "graph.html").read_text("utf-8") == page
    assert "pass epilogues" in page
    assert "http" not in page


def test_text_in_it_is_escaped() -> None:
    graph = parse_graph('graph "<b>"\nbuffer @0: temporary, 4 bytes\n"<script>"<>() writes %0\n')
    page = show(graph)
    assert "<b>" not in page
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_an_empty_graph() -> None:
    assert "No temporaries." in show(Graph("cpu", {}, ()))


def test_bytes_and_flops_of_a_product() -> None:
    [linear, *_] = traced("forward mlp").nodes
    assert linear.name == "linear"
    assert moved_bytes(linear) == 4 * (7 * 13 + 17 * 13 + 17 + 7 * 17)
    assert flops(linear) >= 2 * 7 * 13 * 17


def test_the_chart_reaches_the_lower_bound() -> None:
    graph = traced("training lenet")
    alive = alive_bytes(graph)
    assert len(alive) == len(graph.nodes)
    assert max(alive) == lower_bound(list(lifetimes(graph, graph.nodes).values()))
    assert amount(max(alive), "B") in show(graph)
