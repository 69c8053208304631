"""Host arithmetic, folding, control flow, waiting and narrow integers, beside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dl4all as dl
from dl4all.errors import OperatorError
from dl4all.onnx import graph_simplification
from tests.support.onnx_models import error, graph, model, node, reference, value
from tests.support.subcases import each

CALLS = 5


def both(wanted: Any, inputs: dict[str, Any], device: str, calls: int = CALLS) -> Any:
    """The module, after its results were those of ONNX Runtime in each call."""
    module = dl.onnx.load(wanted, device=device)
    expected = reference(wanted.SerializeToString(), inputs)
    with dl.no_grad():
        for _ in range(calls):
            results = module(**inputs)
            for got, want in zip(
                results if isinstance(results, tuple) else (results,), expected, strict=True
            ):
                assert got.dtype == want.dtype
                assert error(got, want) < 2e-6
    return module


def floats(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def test_shapes_are_host_arithmetic(device: str) -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axes", "u"),
        node("Div", "u two", "half"),
        node("Concat", "half two minus", "new", axis=0),
        node("Reshape", "x new", "r"),
        node("ReduceMax", "r axes", "m", keepdims=0),
        node("Cast", "half", "f", to=TensorProto.FLOAT),
        node("Sqrt", "f", "q"),
        node("Div", "m q", "y"),
    ]
    weights = {"zero": np.array(0), "axes": np.array([0]), "two": np.array([2]), "minus": np.array([-1])}
    wanted = model(nodes, [value("x", shape=["n", "m"])], [value("y")], weights)
    module = both(wanted, {"x": floats(6, 5)}, device)
    assert not module.waits
    assert module._compiled.specializations
    both(wanted, {"x": floats(4, 3)}, device)


def test_constant_indices_from_the_end(device: str) -> None:
    nodes = [
        node("Gather", "x last", "a", axis=1),
        node("GatherElements", "x each", "b", axis=1),
        node("GatherND", "x pairs", "c"),
        node("ScatterElements", "x each new", "d", axis=1),
        node("ScatterND", "x pairs two", "e"),
    ]
    weights = {
        "last": np.array([-1, 0, -3]), "each": np.array([[-1], [1], [-2], [0]]),
        "pairs": np.array([[-1, -2], [0, 1]]), "new": floats(4, 1), "two": floats(2),
    }  # fmt: skip
    wanted = model(nodes, [value("x", shape=["n", "m"])], [value(n) for n in "abcde"], weights)
    both(wanted, {"x": floats(4, 5)}, device)


def test_sizes_that_are_inputs(device: str) -> None:
    x, sizes, y = value("x", shape=["n"]), value("sizes", np.int64, [2]), value("y")
    wanted = model([node("Reshape", "x sizes", "y")], [x, sizes], [y])
    module = both(wanted, {"x": floats(12), "sizes": np.array([3, 4])}, device)
    for shape in ((2, 6), (12, 1)):
        assert module(floats(12), np.array(shape)).shape == shape
        assert module(floats(12), dl.tensor(shape, dtype="int64", device=device)).shape == shape


def test_constants_are_folded_and_dead_nodes_dropped() -> None:
    nodes = [
        node("Constant", "", "a", value_ints=[1, 2]),
        node("Mul", "a a", "b"),
        node("Tanh", "x", "unused"),
        node("Identity", "x", "same"),
        node("Tile", "same b", "y"),
    ]
    module = dl.onnx.load(model(nodes, [value("x", shape=[2, 3])], [value("y")]), device="cpu")
    assert [n.op_type for n in module.graph.nodes] == ["Tile"]
    assert module(floats(2, 3)).shape == (2, 12)
    assert list(module.parameters()) == []


def test_batch_norms_are_folded_only_where_nobody_else_reads() -> None:
    weights = {
        "w": floats(4, 3, 3, 3), "scale": floats(4), "bias": floats(4), "mean": floats(4),
        "var": np.abs(floats(4)) + 0.5,
    }  # fmt: skip
    norm = node("BatchNormalization", "c scale bias mean var", "y")
    conv = node("Conv", "x w", "c", pads=[1, 1, 1, 1])
    inputs, x = [value("x", shape=["n", 3, 8, 8])], {"x": floats(2, 3, 8, 8)}
    alone = both(model([conv, norm], inputs, [value("y")], weights), x, "cpu")
    assert [n.op_type for n in alone.graph.nodes] == ["Conv"]
    assert {name for name, _ in alone.named_parameters()} == {"w", "w_bias"}
    shared = both(model([conv, norm], inputs, [value("y"), value("c")], weights), x, "cpu")
    assert [n.op_type for n in shared.graph.nodes] == ["Conv", "BatchNormalization"]
    twice = [conv, norm, node("ReduceSum", "w", "r", keepdims=0), node("Add", "y r", "z")]
    assert len(both(model(twice, inputs, [value("z")], weights), x, "cpu").graph.nodes) == 4


def loops(trips: Any, condition: Any) -> Any:
    """Doubles a state until it is large, and stacks what it was."""
    body = graph(
        [
            node("Add", "state outer", "next"),
            node("ReduceMax", "next", "largest", keepdims=0),
            node("Less", "largest limit", "goes_on"),
            node("Identity", "state", "seen"),
        ],
        [value("i", np.int64, []), value("go", bool, []), value("state", shape=[3])],
        [value("goes_on", bool, []), value("next", shape=[3]), value("seen", shape=[3])],
        {"limit": np.array(9.0, np.float32)},
    )
    nodes = [node("Mul", "x x", "outer"), node("Loop", "trips go0 x", "last all", body=body)]
    weights = {"trips": np.array(trips), "go0": np.array(condition)}
    return model(nodes, [value("x", shape=[3])], [value("last"), value("all")], weights)


def test_loops_see_names_around_them_and_stack_results(device: str) -> None:
    x = {"x": np.array([0.5, 1.0, 1.5], np.float32)}
    module = both(loops(100, True), x, device)
    assert module.waits  # the condition comes from the data
    assert not module._compiled.specializations
    both(loops(2, True), x, device)
    last, seen = dl.onnx.load(loops(0, True), device=device)(x["x"])
    np.testing.assert_array_equal(last.numpy(), x["x"])
    assert seen.shape == (0, 3)


def test_loops_of_a_known_count_are_replayed(device: str) -> None:
    body = graph(
        [node("Identity", "go", "go_on"), node("Mul", "s s", "t"), node("Tanh", "t", "u")],
        [value("i", np.int64, []), value("go", bool, []), value("s", shape=["n"])],
        [value("go_on", bool, []), value("u", shape=["n"])],
    )
    call = node("Loop", "trips - x", "y", body=body)
    wanted = model([call], [value("x", shape=["n"])], [value("y")], {"trips": np.array(3)})
    module = both(wanted, {"x": floats(5)}, device)
    assert module._compiled.specializations


def test_branches(device: str) -> None:
    yes = graph([node("Mul", "x two", "a")], [], [value("a")], {"two": np.array(2, np.float32)})
    no = graph([node("Neg", "x", "b")], [], [value("b")])
    choice = node("If", "c", "y", then_branch=yes, else_branch=no)
    wanted = model([choice], [value("x", shape=["n"]), value("c", bool, [])], [value("y")])
    for condition in (True, False):
        both(wanted, {"x": floats(5), "c": np.array(condition)}, device)


def test_functions_of_the_model(device: str) -> None:
    opsets = [helper.make_opsetid("", 18)]
    scaled = helper.make_function(
        "own", "scaled", ["a", "b"], ["c"],
        [helper.make_node("LeakyRelu", ["a"], ["l"]), node("Add", "l b", "c")], opsets, ["alpha"],
    )  # fmt: skip
    reference_to = scaled.node[0].attribute.add(name="alpha", type=1)
    reference_to.ref_attr_name = "alpha"
    calls = [
        node("scaled", "x x", "h", domain="own", alpha=0.3),
        node("scaled", "h x", "y", domain="own", alpha=0.1),
    ]
    wanted = model(
        calls, [value("x", shape=["n"])], [value("y", shape=["n"])], opsets=[helper.make_opsetid("own", 1)],
        functions=[scaled],
    )  # fmt: skip
    both(wanted, {"x": floats(7)}, device)


def test_weights_of_4_bits(device: str) -> None:
    numbers = np.random.default_rng(0).integers(-8, 8, (8, 6)).astype(np.int8)
    packed = helper.make_tensor("w", TensorProto.INT4, numbers.shape, numbers.reshape(-1).tolist())
    zero = helper.make_tensor("z", TensorProto.INT4, (6,), [1, -2, 0, 3, 7, -8])
    scale = np.abs(floats(6)) + 0.1
    nodes = [node("DequantizeLinear", "w s z", "d", axis=1), node("MatMul", "x d", "y")]
    wanted = model(nodes, [value("x", shape=["n", 8])], [value("y")], {"s": scale}, opset=21)
    wanted.graph.initializer.extend([packed, zero])
    module, x = dl.onnx.load(wanted, device=device), floats(3, 8)
    expected = x @ ((numbers - np.array([1, -2, 0, 3, 7, -8])) * scale)  # ONNX Runtime rounds x as well
    for _ in range(CALLS):
        assert error(module(x), expected) < 2e-6


@each("unsigned", [True, False])
def test_a_quantised_network_gives_onnx_runtime_s_bytes(unsigned: bool, device: str) -> None:
    kind = np.uint8 if unsigned else np.int8
    generator = np.random.default_rng(1)
    weights = {
        "xs": np.array(0.05, np.float32), "xz": np.array(3, kind), "ws": np.abs(floats(5)) * 0.01 + 0.01,
        "w": generator.integers(-127, 128, (5, 3, 3, 3)).astype(np.int8), "wz": np.zeros(5, np.int8),
        "ys": np.array(0.3, np.float32), "yz": np.array(7, kind),
        "b": generator.integers(-99, 99, 5).astype(np.int32),
        "m": generator.integers(-127, 128, (8, 4)).astype(np.int8), "ms": np.array(0.02, np.float32),
        "mz": np.array(0, np.int8),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", "x xs xz", "q"),
        node("QLinearConv", "q xs xz w ws wz ys yz b", "c", pads=[1, 0, 1, 2], strides=[2, 1]),
        node("QLinearMatMul", "c ys yz m ms mz ys yz", "p"),
        node("DequantizeLinear", "p ys yz", "y"),
    ]
    outputs = [value("c", kind), value("p", kind), value("y")]
    wanted = model(nodes, [value("x", shape=["n", 3, 7, 8])], outputs, weights)
    both(wanted, {"x": 3 * floats(2, 3, 7, 8)}, device)


def test_elements_in_place_of_shapes_wait_without_a_warning(device: str) -> None:
    nodes = [
        node("NonZero", "x", "p"),
        node("Transpose", "p", "q", perm=[1, 0]),
        node("GatherND", "x q", "y"),
    ]
    wanted = model(nodes, [value("x", shape=["n", "m"])], [value("y")])
    module = both(wanted, {"x": np.maximum(floats(4, 5), 0)}, device)
    assert module.waits == ["NonZero"]


def test_types_without_tensors_are_refused() -> None:
    cast = node("Cast", "x", "y", to=TensorProto.FLOAT8E4M3FNUZ)
    wanted = model([cast], [value("x", shape=["n"])], [value("y")], opset=19)
    with pytest.raises(OperatorError, match=r"\(Cast\): there are no tensors of float8_e4m3fnuz"):
        dl.onnx.load(wanted, device="cpu")(floats(2))


def test_what_is_folded_is_bounded() -> None:
    count = np.array([graph_simplification.MOST_FOLDED], np.int64)
    nodes = [node("ConstantOfShape", "n", "c"), node("Add", "c x", "y")]
    wanted = model(nodes, [value("x", shape=[1])], [value("y")], {"n": count})
    module = dl.onnx.load(wanted, device="null:0")
    assert [n.op_type for n in module.graph.nodes] == ["ConstantOfShape", "Add"]


@each("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_scikit_learn_s_operators(transform: str, device: str) -> None:
    ml = "ai.onnx.ml"
    rows = floats(3, 4).ravel().tolist()
    nodes = [
        node("Scaler", "x", "s", domain=ml, offset=[0.1, 0.2, 0.3, 0.4], scale=[1.0, 2.0, 0.5, 3.0]),
        node("Normalizer", "s", "n", domain=ml, norm="L1"),
        node("LinearRegressor", "n", "r", domain=ml, targets=3, coefficients=rows, intercepts=[1, 2, 3.0]),
        node(
            "LinearClassifier", "n", "label scores", domain=ml, coefficients=rows,
            intercepts=[0.1, 0.2, -0.3], classlabels_ints=[7, 3, 5], post_transform=transform,
        ),
        node("Binarizer", "r", "b", domain=ml, threshold=0.5),
        node("ArrayFeatureExtractor", "x columns", "e", domain=ml),
    ]  # fmt: skip
    outputs = [value(n) for n in ("r", "scores", "b", "e")] + [value("label", np.int64)]
    columns, opsets = {"columns": np.array([2, 0])}, [helper.make_opsetid(ml, 1)]
    wanted = model(nodes, [value("x", shape=["n", 4])], outputs, columns, opsets=opsets)
    both(wanted, {"x": floats(5, 4)}, device)


def test_inputs_on_the_host_are_looked_at_in_each_call(device: str) -> None:
    """Boxes decide how many are kept, and callers may write their next ones into the same memory."""
    nodes = [node("NonMaxSuppression", "boxes scores most overlap", "y"), node("Relu", "x", "z")]
    weights = {"most": np.array([100]), "overlap": np.array([0.3], np.float32)}
    inputs = [value("boxes", shape=[1, "n", 4]), value("scores", shape=[1, 2, "n"]), value("x", shape=["m"])]
    wanted = model(nodes, inputs, [value("y", np.int64), value("z")], weights)
    module = dl.onnx.load(wanted, device=device)
    for count in (6, 5000):
        boxes, scores = np.zeros((1, count, 4), np.float32), np.zeros((1, 2, count), np.float32)
        for turn in range(CALLS):
            generator = np.random.default_rng(turn % 3)
            corners = generator.uniform(0, 50, (1, count, 2)).astype(np.float32)
            boxes[...] = np.concatenate([corners, corners + 9], -1)
            scores[...] = generator.uniform(0, 1, scores.shape)
            given = {"boxes": boxes, "scores": scores, "x": floats(3)}
            expected = reference(wanted.SerializeToString(), given)
            chosen, other = module(**given)
            np.testing.assert_array_equal(chosen.numpy(), expected[0])
            np.testing.assert_array_equal(other.numpy(), expected[1])
