"""Hypothesis strategies for graphs: any that can be written down, sound or not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from dl4all.graph.ir.graph import (
    Binding,
    BoundFill,
    BoundLaunch,
    Foreign,
    Graph,
    GraphBuffer,
    MultiTensorLaunch,
    Node,
    Operand,
    Value,
    VaryingWord,
)
from dl4all.ops.conv.window import Window
from dl4all.ops.core.tensor_base import contiguous_strides
from dl4all.ops.pool.windows import Pooling
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device.programs import Launch

SMALL = st.integers(0, 5)
NAMES = st.one_of(st.sampled_from(["relu", "add_", "graph", "return", "None", "", "a b", 'q"#']), st.text())
SHAPES = st.lists(SMALL, max_size=3).map(tuple)
PUSHES = st.binary(max_size=3).map(lambda words: words * 4)
VALUES = st.builds(Value, SMALL, SMALL)


@st.composite
def _operands(draw: Any) -> Operand:
    shape = draw(SHAPES)
    strides = st.tuples(*(st.integers(-9, 9) for _ in shape))
    return Operand(
        draw(VALUES),
        shape,
        draw(st.sampled_from(["float32", "int64", "bool"])),
        draw(st.one_of(st.just(contiguous_strides(shape)), strides)),
        draw(SMALL),
    )


PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.just(Ellipsis)
)
WINDOW = Window((2,), (1,), (0,), (1,), (1,))
RECORDS = st.sampled_from([Foreign("Indices"), slice(1, None, -2), WINDOW, Pooling((5,), (4,), WINDOW)])
ARGUMENTS = st.recursive(
    PLAIN | RECORDS | _operands(),
    lambda inner: st.lists(inner, max_size=2) | st.lists(inner, max_size=2).map(tuple),
    max_leaves=4,
)
LAUNCHES = st.builds(
    Launch,
    st.builds(Shader, NAMES, st.lists(st.tuples(NAMES, NAMES), max_size=2).map(tuple)),
    st.tuples(SMALL, SMALL, SMALL),
    PUSHES,
    st.lists(SMALL, max_size=2).map(tuple),
    SMALL,
)
BINDINGS = st.builds(Binding, SMALL, st.sampled_from([0, 4]), st.sampled_from([4, 24]))
VARYING = st.lists(st.builds(VaryingWord, SMALL, SMALL, SMALL, st.sampled_from([-1, 0, 1])), max_size=2).map(
    tuple
)


@st.composite
def _commands(draw: Any) -> BoundLaunch | BoundFill | MultiTensorLaunch:
    kind = draw(st.sampled_from(["launch", "fill", "multi_tensor"]))
    if kind == "fill":
        return BoundFill(draw(BINDINGS), draw(st.integers(0, 2**32 - 1)))
    launch, varying = draw(LAUNCHES), draw(VARYING)
    flags = draw(st.lists(st.booleans(), min_size=1, max_size=3).map(tuple))
    job = st.tuples(*(BINDINGS for _ in flags))
    if kind == "launch":
        return BoundLaunch(launch, draw(job), flags, varying)
    jobs = draw(st.lists(job, max_size=2).map(tuple))
    widths = draw(st.tuples(*(SMALL for _ in flags)))
    more = st.lists(BINDINGS, max_size=2).map(tuple)
    return MultiTensorLaunch(
        launch,
        jobs,
        flags,
        widths,
        draw(PUSHES),
        varying,
        draw(more),
        draw(more),
        draw(SMALL),
        draw(st.booleans()),
    )


def _nodes(parts: st.SearchStrategy[tuple[Node, ...]]) -> st.SearchStrategy[Node]:
    return st.builds(
        Node,
        NAMES,
        NAMES,
        st.lists(_operands() | st.none() | st.integers() | st.floats(allow_nan=False), max_size=3).map(tuple),
        st.lists(st.tuples(NAMES, ARGUMENTS), max_size=2).map(tuple),
        st.none() | _operands(),
        st.lists(VALUES, max_size=2).map(tuple),
        st.lists(VALUES, max_size=2).map(tuple),
        st.lists(_commands(), max_size=2).map(tuple),
        parts,
        NAMES,
    )


@st.composite
def graphs(draw: Any) -> Graph:
    """Graphs in which every piece takes any value that its type allows."""
    kinds = st.sampled_from(["input", "captured", "constant", "temporary", "output", "state"])
    buffers = {
        number: GraphBuffer(number, draw(st.sampled_from([4, 24])), draw(kinds), draw(NAMES))
        for number in range(6)
    }
    parts = st.lists(_nodes(st.just(())), max_size=2).map(tuple)
    return Graph(
        draw(NAMES),
        buffers,
        draw(st.lists(_nodes(parts), max_size=3).map(tuple)),
        draw(st.lists(SMALL, max_size=3).map(tuple)),
        draw(st.lists(_operands(), max_size=2).map(tuple)),
        draw(st.lists(NAMES, max_size=2).map(tuple)),
        draw(st.frozensets(VALUES, max_size=3)),
        draw(st.lists(_nodes(parts), max_size=1).map(tuple)),
        draw(st.dictionaries(NAMES, NAMES, max_size=2)),
    )
