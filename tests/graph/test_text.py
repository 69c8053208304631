"""Graphs as text and back."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from dl4all.errors import GraphError
from dl4all.graph.ir.graph import Binding, BoundLaunch, Graph, GraphBuffer, HostCall, Node, Operand, Value
from dl4all.graph.ir.parser import parse_graph
from dl4all.graph.ir.text import print_graph
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device.programs import Launch
from tests.support.random_graphs import graphs
from tests.support.traced_graphs import CASES, traced


@given(graphs())
def test_what_is_printed_is_read_back(graph: Graph) -> None:
    text = print_graph(graph)
    again = parse_graph(text)
    assert again == graph
    assert again.notes == graph.notes
    assert print_graph(again) == text


def _graph(*nodes: Node) -> Graph:
    buffers = {0: GraphBuffer(0, 24, "input", "x"), 1: GraphBuffer(1, 24, "temporary")}
    return Graph("vulkan:0", buffers, nodes, (0,), (_tensor(1, 1),), ("dropout",))


def _tensor(buffer: int, version: int) -> Operand:
    return Operand(Value(buffer, version), (2, 3), "float32", (3, 1))


def test_a_type_is_shown_where_it_is_first_seen_and_where_it_differs() -> None:
    x, y = _tensor(0, 0), _tensor(1, 1)
    turned = replace(x, shape=(3, 2), strides=(1, 3))
    text = print_graph(_graph(Node("add", "add", (x, turned, x), (("alpha", 2.0),), y)))
    assert "%1: float32[2, 3] = add(%0.0: float32[2, 3], %0.0: float32[3, 2] strides [1, 3], %0.0, " in text
    assert "alpha=2.0) reads nothing writes nothing" in text


def test_a_launch_shows_all_that_it_has() -> None:
    launch = Launch(Shader("elementwise/unary.comp", (("OP(x)", "-x"),)), (3, 1, 1), b"\1\0\0\0", (7,))
    command = BoundLaunch(launch, (Binding(0, 0, 24), Binding(1, 4, 8)), (False, True))
    lines = print_graph(_graph(Node("neg", commands=(command,)))).splitlines()
    assert (
        '    launch elementwise/unary.comp "OP(x)"="-x" groups [3, 1, 1] constants [7] push 0x01000000 '
        "(@0, write @1[4, 8])"
    ) in lines


def test_what_is_computed_again_says_so() -> None:
    node = Node("add", "add", (_tensor(0, 0),), (), _tensor(1, 1), recomputation=3, line="model.py:1")
    text = print_graph(_graph(node))
    assert "writes nothing recomputation 3  # model.py:1" in text
    assert parse_graph(text).nodes == (node,)


def test_numbers_of_numpy_keep_their_dtype() -> None:
    node = Node("scale", "scale", (), (("by", np.float32(0.1)), ("dtype", np.dtype("int32"))))
    again = parse_graph(print_graph(_graph(node))).nodes[0].arguments
    assert type(again[0][1]) is np.float32
    assert again == (("by", np.float32(0.1)), ("dtype", "int32"))


def test_what_has_no_text_is_shown_and_not_read() -> None:
    text = print_graph(_graph(Node("f", "f", (), (("by", object()),))))
    assert "by=<object>" in text
    with pytest.raises(GraphError, match=r"line 6: .* no text can stand for"):
        parse_graph(text)
    call = HostCall("matmul", lambda *arrays: None, (Binding(0, 0, 24),), (True,))
    text = print_graph(_graph(Node("f", "f", commands=(call,))))
    assert "    host matmul (write @0)" in text
    with pytest.raises(GraphError, match=r"line 7: a call of the host is a Python function"):
        parse_graph(text)


@pytest.mark.parametrize("case", CASES)
def test_a_traced_model_is_read_back(case: str) -> None:
    graph = traced(case)
    text = print_graph(graph)
    assert parse_graph(text) == graph
    assert "traced_graphs.py:" in text


HEAD = "graph cpu\nbuffer @0: input, 8 bytes\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected 'graph'"),
        ("graph", "line 1: expected a word or string, got the end of the line"),
        ("graph cpu cpu", "line 1: expected the end of the line, got 'cpu'"),
        (HEAD + "buffer @1: wrong, 8 bytes", "line 3: expected one of input, captured"),
        (HEAD + "buffer @0: input, 8 bytes", "line 3: buffer @0 is there twice"),
        (HEAD + "buffer @1: input, 8.5 bytes", "line 3: expected an int, got 8.5"),
        (HEAD + "\ninputs 0", "line 4: expected a buffer, got '0'"),
        (HEAD + "return %0.0", "line 3: %0.0 has no type where it is first seen"),
        (HEAD + "relu(%0.0: float32[2]", "line 3: expected ',', got the end"),
        (HEAD + "relu(%0.0: float32[2.5])", "line 3: expected an int, got 2.5"),
        (HEAD + "relu(Unknown(1))", "line 3: arguments of the class Unknown cannot be read"),
        (HEAD + "relu(slice())", "line 3: slice: "),
        (HEAD + "relu() $", "line 3: cannot read '$'"),
        (HEAD + 'relu("\\q")', "line 3: .* is no text"),
        (HEAD + "relu(" + "9" * 500 + ")", "line 3: a number of more than 400 digits"),
        (HEAD + "    relu()", "line 3: it is indented, and no node is above it"),
        (HEAD + "relu()\n    jump", "line 4: expected 'launch', got 'jump'"),
        (
            HEAD + "relu()\n    launch a groups [1, 1] ()",
            "line 4: expected three numbers of workgroups, got 2",
        ),
        (HEAD + "relu()\n    launch a groups [1, 1, 1] push 0x0 ()", "line 4: 0x0 has half a byte"),
        (HEAD + "relu()\n    fill @1 word 0x00", "line 4: there is no buffer @1"),
        (
            HEAD + "relu()\n    fill @0[4] word 0x00",
            "line 4: expected an offset and a number of bytes, got 1",
        ),
        (HEAD + "relu(" + "(" * 5000, "nested too deeply"),
    ],
)
def test_errors_name_the_line(text: str, message: str) -> None:
    pattern = message if ".*" in message else re.escape(message)
    with pytest.raises(GraphError, match=rf"\[parse_graph\] .*{pattern}"):
        parse_graph(text)
