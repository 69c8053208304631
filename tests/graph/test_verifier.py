"""Sound graphs are accepted; broken in one place, they are refused with what is wrong there."""

from __future__ import annotations

import re

import pytest

from dl4all.errors import GraphError
from dl4all.graph.ir.parser import parse_graph
from dl4all.graph.ir.verifier import verify
from tests.support.traced_graphs import CASES, traced

GOOD = """graph cpu
source dropout
buffer @0: input, 24 bytes
buffer @1: captured, 24 bytes
buffer @2: temporary, 24 bytes
buffer @3: temporary, 24 bytes
buffer @4: output, 24 bytes
buffer @5: state, 24 bytes
buffer @6: constant, 4 bytes
buffer @7: derived, 24 bytes
buffer @8: temporary, 24 bytes
inputs @0
preamble %8: float32[2, 3] = exp(%1.0: float32[2, 3])
preamble %7: float32[2, 3] = neg(%8)
%2: float32[2, 3] = add(%0.0: float32[2, 3], %7, alpha=1)  # model.py:3
    launch elementwise/binary.comp groups [1, 1, 1] constants [7] push 0x0600000000000000 (@0, @7, write @2) \
varying 4 = 0[0]
fill<>() reads %3.0 writes %3
    fill @3[0, 12] word 0x00000000
copy<>() reads %3, %6.0 writes %3.2
    launch memory/copy.comp groups [1, 1, 1] (@6, write @3[12, 12])
%3.3: float32[2, 3] = mul(%3.2: float32[2, 3], %2)
    launch elementwise/binary.comp groups [1, 1, 1] (@3, @2, write @3)
%4: float32[3] = sum(%3.3, dim=(0,), keepdim=False, dtype=None) reads %3.3, %2 writes %4, %2.2  # model.py:5
    launch reduce/sum.comp groups [1, 1, 1] (@3, write @2)
    launch reduce/sum.comp groups [1, 1, 1] (@2, write @4)
step<>() reads %1.0, %0.0 writes %1, %5
    multi_tensor launch optim/sgd.comp groups [1, 1, 1] roles read 1, write 1 job (@0, @1) tail 0x00000000 \
after (@5) varying 0 = 0[0]
return %4
keep %4, %1, %5
"""


def test_a_sound_graph_is_accepted() -> None:
    verify(parse_graph(GOOD))


@pytest.mark.parametrize("case", CASES)
def test_traced_graphs_are_sound(case: str) -> None:
    verify(traced(case))


SUM = "node 4, sum (model.py:5): "


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # Order and versions
        ("%0.0: float32[2, 3], %7", "%4: float32[2, 3], %7", "%4 is used before it is written"),
        ("return %4\n", "return %4, %4.7: float32[3]\n", "outputs: %4.7 is never written"),
        ("keep %4, %1, %5", "keep %4, %1, %5, %2", "kept values: %2 is overwritten by %2.2"),
        ("keep %4, %1, %5", "keep %4, %1",
         "%5 changes memory of the kind 'state', and its last value is not"),
        ("keep %4, %1, %5", "keep %4, %5", "%1 changes memory of the kind 'captured'"),
        ("mul(%3.2: ", "mul(%3: ", "node 3, mul: %3 is overwritten by %3.2 before this use"),
        ("reads %3, %6.0 writes %3.2", "reads %3, %6.0 writes %3", "node 2, copy: %3 is written twice"),
        ("writes %1, %5", "writes %1.0, %5", "node 5, step: %1.0 is written after %1.0: versions increase"),
        ("reads %3.3, %2 writes", "reads %3.3, %2.0 writes", SUM + "%2.0 is what a buffer of the kind 'tem"),
        ("reads %1.0, %0.0 writes", "reads %1.0, %0.0, %9 writes", "there is no buffer @9"),
        # Buffers
        ("buffer @6: constant", "buffer @6 for @5: constant", "graph: buffer @6 calls itself @5"),
        ("constant, 4 bytes", "constant, -4 bytes", "graph: buffer @6 has -4 bytes"),
        ("inputs @0", "inputs @0, @1", "graph: @1 is among the inputs, and of the kind 'captured'"),
        ("inputs @0", "inputs @0, @0", "graph: an input is there twice: (0, 0)"),
        ("@1: captured", "@1: input", "graph: @1 is of the kind 'input', and not among the inputs"),
        ("inputs @0", "inputs @0, @9", "graph: there is no buffer @9"),
        ("writes %4, %2.2", "writes %4, %2.2, %6", "%6 is written, and constants are not"),
        # Tensors
        ("%1.0: float32[2, 3]", "%1.0: float32[2, 3] offset 1",
         "%1.0 has elements from byte 4 to 28, and @1"),
        ("%1.0: float32[2, 3]", "%1.0: float32[2, 3] strides [-3, 1]",
         "%1.0 has elements from byte -12 to 12"),
        ("%1.0: float32[2, 3]", "%1.0: float32[2, 3] strides [1]",
         "%1.0 has the shape (2, 3) and the strides"),
        ("%1.0: float32[2, 3]", "%1.0: float31[2, 3]", "%1.0 has the unknown dtype 'float31'"),
        ("%3.2: float32[2, 3]", "%3.2: float32[3, 2]", "its operands and arguments do not fit: "),
        ("%4: float32[3] =", "%4: float32[2] =", "its result is float32[2], and the op infers float32[3]"),
        ("%4: float32[3] =", "%4: int32[3] =", "its result is int32[3], and the op infers float32[3]"),
        ("= sum(", "= smu(", "smu (model.py:5): there is no op 'smu'"),
        ("dim=(0,)", "dim=(2,)", SUM + "its operands and arguments do not fit: [sum]"),
        # The preamble
        ("exp(%1.0: ", "exp(%0.0: ", "preamble 0, exp: it reads %0.0, which is another one in each call"),
        ("@8: temporary", "@8: state", "preamble 0, exp: it writes %8, which is not its own"),
        ("= neg(%8)",
         "= neg(%8)\n    launch a groups [1, 1, 1] push 0x00000000 (@8, write @7) varying 0 = 0[0]",
         "preamble 1, neg: its push constants vary"),
        ("%7, alpha", "%8, alpha", "node 0, add (model.py:3): %8 is free when the preamble has run"),
        ("%3.2: float32[2, 3], %2)", "%3.2: float32[2, 3], %2) reads %3.2, %2 writes %3.3, %7.2",
         "node 3, mul: %7.2 is written, and only the preamble writes what is derived"),
        # Commands
        ("(@3, write @2)", "(@3[0, 28], write @2)",
         SUM + "a command binds bytes 0 to 28 of @3, which has 24"),
        ("(@3, write @2)", "(@3[-4, 8], write @2)", SUM + "a command binds bytes -4 to 4 of @3"),
        ("(@3, write @2)", "(@3[0, 0], write @2)", SUM + "a command binds bytes 0 to 0 of @3"),
        ("(@3, write @2)", "(@3, write @5)", SUM + "a command writes @5, and the node does not"),
        ("(@3, write @2)", "(@1, write @2)",
         SUM + "a command reads @1, which the node neither reads nor made"),
        ("(@3, write @2)", "(@3, @2)", SUM + "it writes @2, and none of its commands does"),
        ("constants [7]", "constants [-7]", "a launch of elementwise/binary.comp has the constants (-7,)"),
        ("[1, 1, 1] constants", "[1, 0, 1] constants",
         "a launch of elementwise/binary.comp has (1, 0, 1) work"),
        ("push 0x0600000000000000", "push 0x06000000000000", "pushes 7 bytes, which are no words"),
        ("varying 4 =", "varying 8 =", "the varying word at byte 8 is not in 8 bytes"),
        ("varying 4 =", "varying 2 =", "the varying word at byte 2 is not in 8 bytes"),
        ("varying 4 = 0[0]", "varying 4 = 1[0]", "number 0 of source 1, and there are 1 sources"),
        ("varying 4 = 0[0]", "varying 4 = 0[-1]", "number -1 of source 0"),
        ("word 0x00000000", "word 0x0100000000", "a fill has the word"),
        ("job (@0, @1)", "job (@0)", "a multi-tensor launch has 2 roles"),
    ],
)  # fmt: skip
def test_a_broken_graph_is_refused(old: str, new: str, message: str) -> None:
    assert GOOD.count(old) == 1
    graph = parse_graph(GOOD.replace(old, new))
    with pytest.raises(GraphError, match=r"\[verify\] .*" + re.escape(message)):
        verify(graph)
