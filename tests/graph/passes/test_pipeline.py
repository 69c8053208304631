"""All passes together: their order, their switches, and the graphs between them."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import dl4all as dl
from dl4all import config
from dl4all.errors import ArgumentError, ConfigError, GraphError
from dl4all.graph.ir.graph import Graph
from dl4all.graph.ir.verifier import verify
from dl4all.graph.passes import pipeline
from dl4all.graph.passes.pipeline import NAMES, Pass, run
from dl4all.graph.tracing.trace import trace
from tests.support.traced_graphs import CASES, traced


def test_a_pass_has_the_name_of_its_function() -> None:
    assert [one.run.__name__ for one in pipeline.PASSES] == [one.name for one in pipeline.PASSES]


@pytest.mark.parametrize("case", CASES)
def test_models_stay_sound(case: str) -> None:
    graph = traced(case)
    smaller = run(graph, verifies=True)
    verify(smaller)
    assert smaller.inputs == graph.inputs
    assert [output.shape for output in smaller.outputs] == [output.shape for output in graph.outputs]


@pytest.mark.parametrize("name", NAMES)
def test_each_pass_alone_and_left_out(name: str) -> None:
    graph = traced("training gpt")
    others = frozenset(NAMES) - {name}
    assert name not in run(graph, {name}, verifies=True).notes
    assert not run(graph, others, verifies=True).notes.keys() & others


def test_without_passes_a_graph_stays_what_it_is() -> None:
    graph = traced("forward mlp")
    assert run(graph, NAMES) is graph


def test_an_unknown_pass_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"no pass 'fusion'; there are constant_folding, "):
        run(traced("forward mlp"), ["fusion"])


def test_what_breaks_a_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: Graph) -> Graph:
        return replace(graph, nodes=graph.nodes[1:])

    monkeypatch.setattr(pipeline, "PASSES", (Pass("dead_code", broken),))
    graph = traced("forward mlp")
    with pytest.raises(GraphError, match=r"is never written \(after the pass dead_code; DL4ALL_PASSES=-dead"):
        run(graph, (), verifies=True)
    assert len(run(graph, (), verifies=False).nodes) == len(graph.nodes) - 1


def test_a_broken_graph_is_seen_before_the_first_pass() -> None:
    graph = traced("forward mlp")
    with pytest.raises(GraphError, match=r"is never written$"):
        run(replace(graph, nodes=graph.nodes[1:]), NAMES, verifies=True)


@pytest.mark.parametrize(
    ("value", "disabled"),
    [
        ("", ""),
        ("none", "a b c"),
        ("-a", "a"),
        ("-a, -c", "a c"),
        ("b", "a c"),
        ("b,c", "a"),
    ],
)
def test_the_environment_leaves_out_passes(
    monkeypatch: pytest.MonkeyPatch, value: str, disabled: str
) -> None:
    monkeypatch.setenv("DL4ALL_PASSES", value)
    assert config.disabled_passes(["a", "b", "c"]) == frozenset(disabled.split())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("-d", "DL4ALL_PASSES has no pass 'd'; there are a, b, or none"),
        ("a,,b", "DL4ALL_PASSES has no pass ''"),
        ("-a,b", "must have a minus before each name, or before none, not '-a,b'"),
    ],
)
def test_a_wrong_list_of_passes_is_refused(monkeypatch: pytest.MonkeyPatch, value: str, message: str) -> None:
    monkeypatch.setenv("DL4ALL_PASSES", value)
    with pytest.raises(ConfigError, match=message):
        config.disabled_passes(["a", "b"])


def test_graphs_are_verified_where_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = traced("forward mlp")
    broken = replace(graph, nodes=graph.nodes[1:])
    monkeypatch.setenv("DL4ALL_PASSES", "none")
    monkeypatch.setenv("DL4ALL_VERIFY_GRAPHS", "0")
    assert run(broken) is broken
    monkeypatch.setenv("DL4ALL_VERIFY_GRAPHS", "1")
    with pytest.raises(GraphError):
        run(broken)
    monkeypatch.setenv("DL4ALL_VERIFY_GRAPHS", "yes")
    with pytest.raises(ConfigError, match="DL4ALL_VERIFY_GRAPHS must be 0, 1 or empty, not 'yes'"):
        run(broken)


def test_the_page_lists_the_passes_in_their_order() -> None:
    page = (Path(__file__).parents[3] / "docs" / "graphs.md").read_text("utf-8").partition("## Passes")[2]
    documented = [(sys.modules[one.run.__module__].__doc__ or "").split("\n\n")[0] for one in pipeline.PASSES]
    rows = [
        f"| `{one.name}` | {text} |".replace("\n", " ")
        for one, text in zip(pipeline.PASSES, documented, strict=True)
    ]
    assert [line for line in page.splitlines() if re.match(r"\| `\w+` \| ", line)] == rows


@pytest.mark.parametrize("name", ["cpu", "cpu#1"])
def test_a_cpu_that_is_opened_once_more_has_the_passes_of_the_cpu(name: str) -> None:
    """Nothing that follows from parameters leaves the calls: NumPy shares their memory."""
    weight, x = dl.rand(3, 3, device=name), dl.rand(2, 3, device=name)
    graph = run(trace(lambda x: x + weight.exp().sum(0), x))
    assert [node.name for node in graph.nodes] == ["exp", "sum", "add"]
    assert graph.preamble == ()
