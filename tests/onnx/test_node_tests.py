"""The node tests of the standard, and those of its earlier PyTorch exporters."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.case.test_case import TestCase as NodeTest
from onnx.backend.test.loader import load_model_tests

import dl4all as dl
from dl4all.errors import OperatorError
from tests.conftest import parameter
from tests.support.subcases import FULL

PARTS = 4  # of the tests, so that processes share them
RANDOM = ("bernoulli",)
"""Tests whose expected results are random numbers of NumPy's generator."""

REFUSED = frozenset(
    (
        "FlexAttention", "ImageDecoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit",
        "TfIdfVectorizer", "LabelEncoder", "TreeEnsemble", "Adagrad",
        "Adam", "Momentum", "Gradient",
    )
)  # fmt: skip
"""Operators of text, trees, pictures and training, and a preview."""

TOLERANCES = {"float16": 2e-3, "bfloat16": 2**-6}
"""Two roundings of a result; the standard's own is meant for float32."""

devices = pytest.mark.parametrize(
    "name", [parameter(name) for name in ("cpu", "vulkan:0", *(("kompute:0",) if FULL else ()))]
)


@functools.cache
def node_tests() -> list[NodeTest]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of casts that overflow, in the making of the tests
        return list(load_model_tests(kind="node"))


def whole(test: NodeTest) -> onnx.ModelProto:
    assert test.model is not None
    return test.model


def plain(given: Any) -> Any:
    """Arrays in the place of messages; integers of 4 and 2 bits in bytes."""
    if isinstance(given, (list, tuple)):
        return [plain(one) for one in given]
    if isinstance(given, onnx.TensorProto):
        given = numpy_helper.to_array(given)
    return given


def bytes_of_narrow(array: Any) -> Any:
    name = array.dtype.name
    return (
        array.astype(np.int8 if name[0] == "i" else np.uint8)
        if name in ("int4", "int2", "uint4", "uint2")
        else array
    )


def compare(got: Any, wanted: Any, rtol: float, atol: float) -> None:
    if wanted is None or isinstance(wanted, (list, tuple)):
        assert (got is None) == (wanted is None)
        for one, other in zip(got or (), wanted or (), strict=True):
            compare(one, other, rtol, atol)
        return
    got, wanted = got.detach().numpy(), bytes_of_narrow(np.asarray(plain(wanted)))
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    rtol = max(rtol, TOLERANCES.get(got.dtype.name, 1e-3))
    if got.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_allclose(got, wanted, rtol, max(atol, 1e-5))


def may_be_refused(model: onnx.ModelProto) -> bool:
    """Whether a model has an operator that is not here, noise, or a type of which there are no tensors."""
    types = set[int]()
    for info in (*model.graph.input, *model.graph.output):
        kind = info.type
        while not kind.HasField("tensor_type"):
            kind = getattr(kind, str(kind.WhichOneof("value"))).elem_type
        types.add(kind.tensor_type.elem_type)
    for node in model.graph.node:
        types |= {a.i for a in node.attribute if a.name in ("to", "output_dtype", "dtype")} - {0}
    known = {"float32", "float64", "float16", "bfloat16", "bool", "uint8", "int64", "int32", "int16", "int8"}
    known |= {"float8_e4m3fn", "float8_e5m2"}
    narrow = {"int4", "uint4", "int2", "uint2"}
    names = {np.dtype(helper.tensor_dtype_to_np_dtype(number)).name for number in types}
    ops = {node.op_type for node in model.graph.node}
    return bool(names - known - narrow or ops & REFUSED or "Dropout" in ops)


def run(model: onnx.ModelProto, data: Any, name: str, rtol: float, atol: float) -> None:
    module = dl.onnx.load(model, device=name)
    for inputs, outputs in data:
        given = dict(zip((info.name for info in model.graph.input), plain(inputs), strict=False))
        with dl.no_grad():
            results = module(*(given.get(name) for name in module.input_names))
        for got, wanted in zip(results if isinstance(results, tuple) else (results,), outputs, strict=False):
            compare(got, wanted, rtol, atol)


def stored(folder: Path) -> list[Any]:
    """The inputs and outputs of a test in files."""

    def read(path: Path, kind: str) -> list[Any]:
        files = sorted(path.glob(f"{kind}_*.pb"), key=lambda file: int(file.stem.rpartition("_")[2]))
        return [numpy_helper.to_array(onnx.TensorProto.FromString(file.read_bytes())) for file in files]

    return [(read(path, "input"), read(path, "output")) for path in folder.glob("test_data_set_*")]


@devices
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore::UserWarning")  # that ops run on the CPU, of types that no kernel has
def test_nodes_give_the_standard_s_results(name: str, part: int) -> None:
    passed, refused, wrong = 0, list[str](), list[str]()
    few = not FULL and name != "cpu"  # operators are the same; the kernels have tests of their own
    for test in node_tests()[part :: PARTS * (3 if few else 1)]:
        if any(word in test.name for word in RANDOM):
            continue
        try:
            run(whole(test), test.data_sets, name, test.rtol, test.atol)
            passed += 1
        except OperatorError as reason:
            refused.append(f"{test.name}: {reason}")
        except Exception as problem:  # noqa: BLE001 - all of them are shown together
            wrong.append(f"{test.name}: {type(problem).__name__}: {str(problem)[:300]}")
    assert not wrong, "\n".join(wrong)
    assert passed > 8 * len(refused) > 0


@devices
@pytest.mark.parametrize("kind", ["pytorch-converted", "pytorch-operator"])
def test_models_of_old_exporters_give_pytorch_s_results(name: str, kind: str) -> None:
    tests = load_model_tests(kind=kind)
    for test in tests:
        folder = Path(str(test.model_dir))
        model = onnx.load(folder / "model.onnx")
        run(model, stored(folder), name, test.rtol, test.atol)
    assert len(tests) > 30
