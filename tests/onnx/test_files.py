"""Files that are damaged, hostile or of another kind: clear errors, in bounded time, and nothing is run."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dl4all as dl
from dl4all.errors import (
    ArgumentError,
    BackendMissingError,
    Dl4allError,
    DTypeError,
    FileFormatError,
    OperatorError,
    OutOfMemoryError,
    ShapeError,
)
from dl4all.onnx import dtypes
from tests.support.exported_networks import exported
from tests.support.onnx_models import graph, model, node, value
from tests.support.subcases import FULL, each

FLIPS = 2000 if FULL else 120  # of each file
MOST_ELEMENTS = 10_000  # of an input that a flip may have made larger


def relu(**options: Any) -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], [value("x", shape=["n"])], [value("y", shape=["n"])], **options)


def test_no_file_and_no_model(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"none\.onnx: cannot be read: No such file"):
        dl.onnx.load(tmp_path / "none.onnx")
    with pytest.raises(FileFormatError, match="cannot be read"):
        dl.onnx.load(tmp_path)
    for content in (b"", b"not a model", os.urandom(1000), relu().SerializeToString()[:-3]):
        with pytest.raises(FileFormatError):
            dl.onnx.load(content)


@each("name", ["bert", "lstm", "functions"])
def test_flipped_bytes(name: str) -> None:
    content, generator = exported(name)[0], random.Random(name)
    for turn in range(FLIPS):
        damaged = bytearray(content)
        for _ in range(generator.choice((1, 1, 3))):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        if turn % 10 == 9:
            del damaged[generator.randrange(len(damaged)) :]
        with contextlib.suppress(Dl4allError):  # and no other error
            module = dl.onnx.load(bytes(damaged), device="cpu", max_iterations=10)
            inputs = [example(info) for info in module.graph.arguments]
            if all(array is not None for array in inputs):
                module(*inputs)


def example(info: Any) -> Any:
    shape = [size if isinstance(size, int) else 3 for size in info.shape or ()]
    return np.ones(shape, info.dtype or np.float32) if np.prod(shape, dtype=float) < MOST_ELEMENTS else None


def test_orders_cycles_and_names() -> None:
    x, y = value("x", shape=["n"]), value("y", shape=["n"])
    cycle = model([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")], [x], [y])
    with pytest.raises(FileFormatError, match=r"'a' \(Add\) reads 'b', which nothing before it computes"):
        dl.onnx.load(cycle)
    with pytest.raises(FileFormatError, match="nothing computes the output 'y'"):
        dl.onnx.load(model([node("Relu", "x", "z")], [x], [y]))
    with pytest.raises(FileFormatError, match="computes 'y', which another node computes"):
        dl.onnx.load(model([node("Relu", "x", "y"), node("Neg", "x", "y")], [x], [y]))
    with pytest.raises(FileFormatError, match="two inputs of one name"):
        dl.onnx.load(model([node("Relu", "x", "y")], [x, x], [y]))
    with pytest.raises(OperatorError, match="opset 999"):
        dl.onnx.load(relu(opset=999))


def test_operators_that_are_not_here_are_counted() -> None:
    nodes = [
        node("Frobnicate", "x", "a"),
        node("Frobnicate", "a", "b"),
        node("Foo", "b", "y", domain="own"),
    ]
    wanted = model(nodes, [value("x")], [value("y")], opsets=[helper.make_opsetid("own", 1)])
    with pytest.raises(NotImplementedError, match=r"Frobnicate \(2\), own::Foo \(1\)"):
        dl.onnx.load(wanted)


def test_tensors_whose_bytes_are_not_those_of_their_shape() -> None:
    huge = TensorProto(dims=[50_000, 50_000], data_type=TensorProto.FLOAT, name="w", raw_data=b"1234")
    listed = TensorProto(dims=[50_000, 50_000], data_type=TensorProto.FLOAT, name="w", float_data=[1.0])
    negative = TensorProto(dims=[-1], data_type=TensorProto.FLOAT, name="w", raw_data=b"")
    for tensor, expected in (
        (huge, "10000000000 bytes, and has 4"),
        (listed, "2500000000 numbers"),
        (negative, "-1"),
    ):
        wanted = model([node("Add", "x w", "y")], [value("x", shape=["n"])], [value("y")])
        wanted.graph.initializer.append(tensor)
        begun = time.perf_counter()
        with pytest.raises(FileFormatError, match=expected):
            dl.onnx.load(wanted)
        assert time.perf_counter() - begun < 5  # a bound against hanging, not a measurement


def test_results_beyond_all_memory_are_refused() -> None:
    nodes = [node("ConstantOfShape", "n", "c"), node("Add", "c x", "y")]
    wanted = model(nodes, [value("x", shape=[1])], [value("y")], {"n": np.array([1 << 40])})
    module = dl.onnx.load(wanted, device="cpu")  # which does not compute it yet
    with pytest.raises((OutOfMemoryError, ArgumentError)):
        module(np.ones(1, np.float32))


def external(folder: Path, location: str, **entries: Any) -> Path:
    """A model whose weight is in a file beside it."""
    tensor = TensorProto(dims=[4], data_type=TensorProto.FLOAT, name="w", data_location=TensorProto.EXTERNAL)
    for key, entry in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(entry))
    wanted = model([node("Add", "x w", "y")], [value("x", shape=[4])], [value("y", shape=[4])])
    wanted.graph.initializer.append(tensor)
    (folder / "model.onnx").write_bytes(wanted.SerializeToString())
    return folder / "model.onnx"


def test_external_data(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "data").mkdir(parents=True)
    numbers = np.arange(8, dtype=np.float32)
    (folder / "data" / "w.bin").write_bytes(numbers.tobytes())
    (tmp_path / "secret.bin").write_bytes(numbers.tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    module = dl.onnx.load(external(folder, "data/w.bin", offset=16, length=16), device="cpu")
    np.testing.assert_array_equal(module(np.zeros(4, np.float32)).detach().numpy(), numbers[4:])
    for location, entries, expected in (
        ("none.bin", {}, "no such file"),
        ("../secret.bin", {}, "outside of the model's folder"),
        ("link.bin", {}, "outside of the model's folder"),
        (str(tmp_path / "secret.bin"), {}, "outside of the model's folder"),
        ("", {}, "outside of the model's folder"),
        ("data/w.bin", {"offset": 24}, "takes 16 bytes; 'data/w.bin' has 32"),
        ("data/w.bin", {"offset": -8}, "from -8 on"),
        ("data/w.bin", {"length": 12}, "of which 12"),
        ("data/w.bin", {"offset": "x"}, "is not sound"),
    ):
        with pytest.raises(FileFormatError, match=expected):
            dl.onnx.load(external(folder, location, **entries))
    with pytest.raises(FileFormatError, match="load the model by its path"):
        dl.onnx.load(external(folder, "data/w.bin").read_bytes())


def nested(depth: int) -> onnx.ModelProto:
    """Branches within branches."""
    inner = graph([node("Relu", "x", "r0")], [], [value("r0")])
    for level in range(1, depth):
        branch = node("If", "c", f"r{level}", then_branch=inner, else_branch=inner)
        inner = graph([branch], [], [value(f"r{level}")])
    return model(inner.node, [value("x", shape=["n"]), value("c", bool, [])], [value(f"r{depth - 1}")])


def test_nesting() -> None:
    module = dl.onnx.load(nested(5), device="cpu")
    assert module(np.array([-1.0, 2.0], np.float32), np.array(True)).tolist() == [0.0, 2.0]
    # One branch within the other a thousand times, as bytes that no message writes by itself.
    inner = graph([node("Relu", "x", "r")], [], [value("r")]).SerializeToString()
    for _ in range(1000):
        attribute = onnx.AttributeProto(
            name="then_branch", type=onnx.AttributeProto.GRAPH
        ).SerializeToString()
        attribute += b"\x32" + varint(len(inner)) + inner
        call = node("If", "c", "r").SerializeToString() + b"\x2a" + varint(len(attribute)) + attribute
        inner = b"\x0a" + varint(len(call)) + call
    with pytest.raises(FileFormatError):
        dl.onnx.load(b"\x3a" + varint(len(inner)) + inner)


def varint(number: int) -> bytes:
    """
    >>> varint(300)
    b'\\xac\\x02'
    """
    result = b""
    while number > 127:
        result += bytes([number & 127 | 128])
        number >>= 7
    return result + bytes([number])


def test_loops_and_functions_without_an_end() -> None:
    body = graph(
        [node("Identity", "go", "goes_on"), node("Add", "s one", "t")],
        [value("i", np.int64, []), value("go", bool, []), value("s", shape=["n"])],
        [value("goes_on", bool, []), value("t", shape=["n"])],
        {"one": np.ones(1, np.float32)},
    )
    x, y = value("x", shape=["n"]), value("y", shape=["n"])
    endless = model([node("Loop", "- - x", "y", body=body)], [x], [y])
    module = dl.onnx.load(endless, device="cpu", max_iterations=50)
    with pytest.raises(ArgumentError, match=r"\(Loop\): the loop has not ended after 50 turns"):
        module(np.zeros(2, np.float32))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    itself = helper.make_function("own", "f", ["a"], ["b"], [node("f", "a", "b", domain="own")], opsets)
    call = node("f", "x", "y", domain="own")
    calls = model([call], [x], [y], opsets=opsets[1:], functions=[itself])
    with pytest.raises(ArgumentError, match="one calls itself"):
        dl.onnx.load(calls, device="cpu")(np.zeros(2, np.float32))


def test_inputs_that_do_not_fit() -> None:
    x, z = value("x", shape=[2, "n"]), value("z", shape=[1])
    module = dl.onnx.load(model([node("Add", "x z", "y")], [x, z], [value("y")]), device="cpu")
    good, one = np.ones((2, 3), np.float32), np.ones(1, np.float32)
    calls: list[tuple[Callable[[], Any], type[Dl4allError], str]] = [
        (lambda: module(good), ArgumentError, "the inputs z are missing"),
        (lambda: module(good, one, one), ArgumentError, "expected 2 inputs"),
        (lambda: module(good, x=good), ArgumentError, "'x' is given twice"),
        (lambda: module(good, w=one), ArgumentError, "there is no input 'w'; use x, z"),
        (lambda: module(good.astype(np.float64), one), DTypeError, "'x' is float32, got float64"),
        (lambda: module(good[0], one), ShapeError, r"'x' has the shape \(2, n\), got \(3,\)"),
        (lambda: module(np.ones((3, 3), np.float32), one), ShapeError, r"got \(3, 3\)"),
    ]
    for call, kind, expected in calls:
        with pytest.raises(kind, match=expected):
            call()
    assert module(z=one, x=good).shape == (2, 3)


def test_errors_of_nodes_name_them() -> None:
    x, z, y = value("x", shape=["n", "m"]), value("z", shape=["k"]), value("y")
    product = model([node("MatMul", "x z", "y", name="product")], [x, z], [y])
    with pytest.raises(ShapeError, match=r"\[onnx\] node 'product' \(MatMul\)"):
        dl.onnx.load(product, device="cpu")(np.ones((2, 3), np.float32), np.ones(4, np.float32))
    pads = {"p": np.array([0, 0, 1, 1])}
    unknown = model([node("Pad", "x p", "y", mode="sideways")], [x], [y], pads)
    with pytest.raises(ArgumentError, match="one of constant, edge, reflect, wrap, got 'sideways'"):
        dl.onnx.load(unknown, device="cpu")(np.ones((2, 3), np.float32))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(BackendMissingError, match=r"pip install 'onnx>="):
        dtypes.protobuf()
