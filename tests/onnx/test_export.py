"""Exported files, by ONNX Runtime and loaded again, at other sizes and opsets; and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import dl4all as dl
from dl4all import nn
from dl4all.errors import ArgumentError, GraphError
from dl4all.onnx.exporter import export as exporter
from dl4all.onnx.exporter.dynamic_sizes import formula_of
from dl4all.onnx.exporter.recording import flat
from dl4all.onnx.exporter.views import View, view_steps
from tests.support.export_cases import FUNCTIONS, INTEGER_FUNCTIONS, LAYERS, FunctionModule, numbers, words
from tests.support.onnx_models import error, reference
from tests.support.subcases import each

TOLERANCE = 1e-5
NEWEST = onnx.defs.onnx_opset_version()
KNOWN = min(23, NEWEST)  # the newest opset of which ONNX Runtime has all kernels


def others(x: Any) -> Any:
    """Two more rows."""
    return dl.cat([x, x[:1], x[:1]])


def agree(got: Any, wanted: Any) -> None:
    pairs = list(zip(flat(got), flat(wanted), strict=True))
    assert pairs
    for one, other in pairs:
        array = other.detach().numpy()
        assert one.dtype == array.dtype
        assert error(one, array) < (TOLERANCE if array.dtype != np.float16 else 1e-3)


def check(module: Any, x: Any, path: Path, opset: int, *, dynamic: bool, axis: int = 0) -> onnx.ModelProto:
    """Write a module, and compare what ONNX Runtime and dl4all compute of the file."""
    opens = {"x": {axis: "batch"}} if dynamic else None
    dl.onnx.export(module, x, path, input_names=["x"], dynamic=opens, opset_version=opset)
    given = others(x) if dynamic else x
    with dl.no_grad():
        wanted = module(given)
        if opset <= KNOWN:
            agree(reference(path.read_bytes(), {"x": given.numpy()}), wanted)
        agree(dl.onnx.load(path, device="cpu")(given), wanted)
    return onnx.load(path)


@pytest.mark.parametrize("opset", [17, 18, KNOWN, NEWEST])
def test_layers(opset: int, tmp_path: Path) -> None:
    for name, (make, shape) in LAYERS.items():
        layer = make().to("cpu").eval()
        for vector in (*layer.parameters(), *layer.buffers()):
            if vector.ndim == 1 and vector.dtype == np.float32:
                vector.detach().copy_(numbers(*vector.shape).abs() + 0.5)
        opened = name not in ("encoder_layer", "adaptive_avg_uneven") and opset != 18
        try:
            check(layer, numbers(*shape), tmp_path / "layer.onnx", opset, dynamic=opened)
        except Exception as problem:
            raise AssertionError(f"{name}: {problem}") from problem


@each("opset, dynamic", [(17, True), (18, False), (KNOWN, True), (NEWEST, True)])
def test_functions(opset: int, dynamic: bool, tmp_path: Path) -> None:
    for name, function in FUNCTIONS.items():
        try:
            check(FunctionModule(function).eval(), numbers(3, 4), tmp_path / "f.onnx", opset, dynamic=dynamic)
        except Exception as problem:
            raise AssertionError(f"{name}: {problem}") from problem


@each("opset, dynamic", [(17, True), (18, False), (KNOWN, True)])
def test_functions_of_integers(opset: int, dynamic: bool, tmp_path: Path) -> None:
    x = dl.tensor(np.random.default_rng(0).integers(1, 9, (3, 4)), device="cpu")
    for name, function in INTEGER_FUNCTIONS.items():
        try:
            check(FunctionModule(function).eval(), x, tmp_path / "f.onnx", opset, dynamic=dynamic)
        except Exception as problem:
            raise AssertionError(f"{name}: {problem}") from problem


def models() -> dict[str, tuple[Any, Any]]:
    return {
        "resnet18_digits": (dl.models.resnet18_digits(), numbers(2, 1, 28, 28)),
        "mobilenet_v2": (dl.models.mobilenet_v2(num_classes=10), numbers(1, 3, 32, 32)),
        "lenet": (dl.models.LeNet(), numbers(2, 1, 28, 28)),
        "gpt": (dl.models.GPT(20, 8, 2, 4, 16), words(2, 6)),
        "lstm_tagger": (dl.models.LSTMTagger(20, 8, 8, 5), words(2, 6)),
    }


@pytest.mark.parametrize("name", ["resnet18_digits", "mobilenet_v2", "lenet", "gpt", "lstm_tagger"])
def test_models(name: str, tmp_path: Path) -> None:
    model, x = models()[name]
    model = model.to("cpu").eval()
    check(model, dl.cat([x, x]) if len(x) == 1 else x, tmp_path / "model.onnx", 17, dynamic=True)


def test_several_open_sizes(tmp_path: Path) -> None:
    model, path = dl.models.GPT(20, 16, 2, 4, 16).to("cpu").eval(), tmp_path / "gpt.onnx"
    summary = dl.onnx.export(
        model, words(2, 5), path, input_names=["ids"], dynamic={"ids": {0: "batch", 1: "length"}}
    )
    assert summary.input_names == ("ids",)
    for shape in ((1, 1), (3, 8), (2, 16)):
        with dl.no_grad():
            agree(reference(path.read_bytes(), {"ids": words(*shape).numpy()}), model(words(*shape)))
    declared = onnx.load(path).graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param for dim in declared] == ["batch", "length"]
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    net = net.to("cpu").eval()
    dl.onnx.export(
        net, numbers(1, 3, 20, 24), path, input_names=["x"], dynamic={"x": {0: "n", 2: "h", 3: "w"}}
    )
    x = numbers(3, 3, 33, 41)
    with dl.no_grad():
        agree(reference(path.read_bytes(), {"x": x.numpy()}), net(x))


class States(nn.Module):
    """A layer with the states of the call before."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 5, 2, batch_first=True)

    def forward(self, x: Any, h: Any, c: Any) -> dict[str, Any]:
        y, (h, c) = self.layer(x, (h, c))
        return {"y": y, "states": (h, c)}


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    path, module = tmp_path / "states.onnx", States().to("cpu").eval()
    inputs = numbers(3, 6, 4), numbers(2, 3, 5), numbers(2, 3, 5, seed=1)
    axes = {"x": {0: "batch"}, "h": {1: "batch"}, "c": {1: "batch"}}
    summary = dl.onnx.export(module, inputs, path, dynamic=axes, output_names=["y", "hn", "cn"], verify=True)
    assert summary.input_names == ("x", "h", "c")
    assert summary.output_names == ("y", "hn", "cn")
    assert summary.error is not None
    assert summary.error < TOLERANCE
    larger = numbers(4, 6, 4), numbers(2, 4, 5), numbers(2, 4, 5, seed=1)
    given = {name: x.numpy() for name, x in zip("xhc", larger, strict=True)}
    with dl.no_grad():
        agree(reference(path.read_bytes(), given), module(*larger))


@pytest.mark.parametrize("dynamic", [False, True])
def test_masks_of_attention(dynamic: bool, tmp_path: Path) -> None:
    """Of all, of samples, of heads, and of both; fewer heads of keys, too."""

    def attend(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    path, names = tmp_path / "attention.onnx", list("qkvm")
    for shape in ((5, 6), (1, 1, 1, 6), (3, 1, 5, 6), (3, 1, 1, 6), (1, 4, 5, 6), (3, 4, 5, 6)):
        q, k, v, mask = numbers(3, 4, 5, 8), numbers(3, 2, 6, 8), numbers(3, 2, 6, 8, seed=1), numbers(*shape)
        opened = [name for name in names if name != "m" or shape[0] == 3] if dynamic else []
        dl.onnx.export(
            FunctionModule(attend).eval(), (q, k, v, mask), path, input_names=names,
            dynamic={name: {0: "batch"} for name in opened},
        )  # fmt: skip
        given = [others(x) if name in opened else x for name, x in zip(names, (q, k, v, mask), strict=True)]
        wanted = attend(*given)
        agree(reference(path.read_bytes(), dict(zip(names, (x.numpy() for x in given), strict=True))), wanted)
        agree(dl.onnx.load(path, device="cpu")(*given), wanted)


def test_parameters_keep_their_names_and_sizes_take_no_memory(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to("cpu").eval()
    dl.onnx.export(net, numbers(2, 3), tmp_path / "net.onnx")
    graph = onnx.load(tmp_path / "net.onnx").graph
    assert {i.name for i in graph.initializer} == {name for name, _ in net.named_parameters()}
    assert [node.op_type for node in graph.node] == ["Gemm", "Relu", "Gemm"]
    assert "test_export.py" in graph.node[0].doc_string
    dl.memory.reset_peak("cpu")
    before = dl.memory.stats("cpu").allocated
    wide = dl.empty(1, 1, device="null:0").expand(3000, 3000)
    dl.onnx.export(FunctionModule(lambda x: (x * 2).sum()).eval(), wide, tmp_path / "wide.onnx")
    assert dl.memory.stats("cpu").peak - before < 1 << 20


def test_pytorch_s_forms_of_open_axes(tmp_path: Path) -> None:
    class Dim:
        __name__ = "rows"

    net, path = nn.Linear(3, 2).to("cpu").eval(), str(tmp_path / "net.onnx")
    for options in (
        {"dynamic_axes": {"input": {0: "rows"}}}, {"dynamic_axes": {"input": [0]}},
        {"dynamic_shapes": ({0: Dim()},)}, {"dynamic_shapes": {"input": {0: Dim()}}},
        {"dynamic_axes": {"input": {0: "rows"}}, "export_params": True, "do_constant_folding": True},
    ):  # fmt: skip
        dl.onnx.export(net, (numbers(1, 3),), path, **options)
        assert reference(Path(path).read_bytes(), {"input": numbers(5, 3).numpy()})[0].shape == (5, 2)


def quantised_perceptrons() -> dict[str, Any]:
    """Networks with weights in few bits, by how they are held."""
    made: dict[str, Any] = {}
    for config in (
        dl.quantization.Int8WeightOnlyConfig(),
        dl.quantization.Int4WeightOnlyConfig(group_size=32),
        dl.quantization.Int8DynamicActivationInt8WeightConfig(),
    ):
        net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 5, bias=False)).to("cpu").eval()
        dl.quantization.quantize_(net, config)
        made[type(config).__name__] = net
    return {**made, "Q8_0": held_by(dl.quantization.PackedWeight.nearest(numbers(5, 64), "Q8_0"))}


def held_by(weight: Any) -> Any:
    """A linear layer with a weight."""
    layer: Any = nn.Linear(weight.shape[1], weight.shape[0]).to("cpu")
    layer.weight = weight
    return layer.eval()


def agree_without_approximations(path: Path, module: Any, x: Any) -> onnx.ModelProto:
    """ONNX Runtime's products of dequantised integers are of integers again unless it is told otherwise."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    with dl.no_grad():
        agree(session.run(None, {"x": x.numpy()}), module(x))
        agree(dl.onnx.load(path, device="cpu")(x), module(x))
    return onnx.load(path)


@each("opset, dynamic", [(17, True), (20, False), (21, True), (KNOWN, True)])
def test_weights_in_few_bits(opset: int, dynamic: bool, tmp_path: Path) -> None:
    path, x = tmp_path / "net.onnx", numbers(3, 64)
    for name, net in quantised_perceptrons().items():
        opens = {"x": {0: "batch"}} if dynamic else None
        dl.onnx.export(net, x, path, input_names=["x"], dynamic=opens, opset_version=opset)
        written = agree_without_approximations(path, net, others(x) if dynamic else x)
        held = {onnx.TensorProto.DataType.Name(tensor.data_type) for tensor in written.graph.initializer}
        assert ("INT4" if opset >= 21 and "Int4" in name else "INT8") in held, name


@pytest.mark.parametrize("opset", [17, KNOWN])
def test_calibrated_networks(opset: int, tmp_path: Path) -> None:
    path, x = tmp_path / "net.onnx", numbers(4, 3, 12, 11)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(8, 8, (3, 2), padding="same", dilation=2, bias=False), nn.Flatten(), nn.Linear(288, 5),
    )  # fmt: skip
    prepared = dl.quantization.prepare(net.to("cpu").eval())
    prepared(x)
    converted = dl.quantization.convert(prepared)
    opens = {"x": {0: "batch"}}
    dl.onnx.export(converted, x, path, input_names=["x"], dynamic=opens, opset_version=opset)
    written = agree_without_approximations(path, converted, others(x))
    counts = Counter(node.op_type for node in written.graph.node)
    assert (counts["QuantizeLinear"], counts["DequantizeLinear"], counts["Conv"]) == (3, 6, 2)


def test_formats_that_are_not_written(tmp_path: Path) -> None:
    data, scale = dl.ones(4, 144, dtype="uint8", device="cpu"), dl.ones(4, 2, dtype="float16", device="cpu")
    net = held_by(dl.quantization.PackedWeight(data[:, :140], scale, "Q4_K"))
    with pytest.raises(GraphError, match=r"a weight of Q4_K has no form; take its dequantized\(\)"):
        dl.onnx.export(net, numbers(2, 256), tmp_path / "x.onnx")


class Reads(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * float(x.sum().item())


class Writes(nn.Module):
    """A module that counts its calls, or forgets."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        super().__init__()
        self.seen: Any
        self.change = change
        self.register_buffer("seen", dl.zeros(2))

    def forward(self, x: Any) -> Any:
        self.change(self.seen)
        return x * self.seen[0]


OPEN: dict[str, Any] = {"dynamic": {"x": {0: "n"}}}
HERE = r" \(called at .*tests/(onnx/test_export|support/export_cases)\.py"
REFUSALS: list[tuple[Callable[[], Any], dict[str, Any], type[Exception], str]] = [
    (Reads, {}, GraphError, "reads elements of a tensor on the host" + HERE),
    *(
        (partial(Writes, change), {}, GraphError, "changes its own 'seen', and a graph keeps no state")
        for change in (lambda seen: seen.add_(1), lambda seen: seen.zero_(), lambda seen: seen[1:].fill_(2))
    ),
    (lambda: FunctionModule(lambda x: x.median(1)[0]), {}, GraphError, "by something that is no op" + HERE),
    (lambda: FunctionModule(lambda x: x.cumprod(1)), {}, GraphError, "a form from opset 26 on" + HERE),
    (lambda: FunctionModule(dl.digamma), {}, GraphError, "the op digamma has no form here" + HERE),
    (lambda: FunctionModule(lambda x: x[:, dl.randperm(4)]), {}, GraphError, "draws random numbers" + HERE),
    (
        lambda: FunctionModule(lambda x: x * dl.rand(4, device="cpu")),
        {},
        GraphError,
        r"put on a device by name meets the inputs: .*device=x\.device",
    ),
    (lambda: FunctionModule(lambda x: 3), {}, GraphError, "as the result, got int"),
    (lambda: FunctionModule(lambda x: x.std(0)), OPEN, GraphError, "another one at another size" + HERE),
    (lambda: FunctionModule(lambda x: x[: len(x) // 2] * 2), OPEN, GraphError, "in a way that is not found"),
    (lambda: nn.Linear(4, 2), {"opset_version": 9}, ArgumentError, "an opset of 17 to"),
    (lambda: nn.Linear(4, 2), {"input_names": ["a", "b"]}, ArgumentError, "expected 1 input names"),
    (lambda: nn.Linear(4, 2), {"output_names": ["a", "b"]}, ArgumentError, "expected 1 output names"),
    (lambda: nn.Linear(4, 2), {"dynamic": {"y": {0: "n"}}}, ArgumentError, "there is no input 'y'; use x"),
    (lambda: nn.Linear(4, 2), {"dynamic": {"x": {2: "n"}}}, ArgumentError, "has 2 axes, and no axis 2"),
]


@each("make, options, kind, expected", REFUSALS)
def test_refusals(
    make: Callable[[], Any], options: dict[str, Any], kind: type[Exception], expected: str, tmp_path: Path
) -> None:
    module = make().to("cpu").eval()
    with pytest.raises(kind, match=expected):
        dl.onnx.export(module, numbers(6, 4), tmp_path / "x.onnx", **{"input_names": ["x"], **options})
    assert not (tmp_path / "x.onnx").exists()


def test_training_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"in training mode; call \.eval"):
        dl.onnx.export(nn.Sequential(nn.Dropout()).train(), numbers(2, 3), tmp_path / "x.onnx")


def test_large_initializers_go_to_a_second_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "LARGEST", 1000)
    net, x = nn.Linear(64, 64).to("cpu").eval(), numbers(2, 64)
    dl.onnx.export(net, x, tmp_path / "net.onnx")
    assert (tmp_path / "net.onnx.data").stat().st_size >= 64 * 64 * 4
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    with dl.no_grad():
        agree(session.run(None, {"input": x.numpy()}), net(x))
        agree(dl.onnx.load(tmp_path / "net.onnx", device="cpu")(x), net(x))


def test_verification_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "VERIFY_TOLERANCE", -1.0)
    with pytest.raises(GraphError, match="ONNX Runtime's results differ by"):
        dl.onnx.export(nn.Linear(3, 2).to("cpu").eval(), numbers(2, 3), tmp_path / "x.onnx", verify=True)


def shown(array: Any, steps: list[Any]) -> Any:
    """An array after the nodes of a view."""
    for kind, argument in steps:
        if kind == "Reshape":
            array = array.reshape(argument)
        elif kind == "Transpose":
            array = array.transpose(argument)
        elif kind == "Expand":
            array = np.broadcast_to(array, argument)
        elif kind == "Flip":
            array = np.flip(array, argument)
        else:
            index = [slice(None)] * array.ndim
            for start, end, axis, step in zip(*argument, strict=True):
                index[axis] = slice(start, end, step)
            array = array[tuple(index)]
    return array


def test_random_views() -> None:
    generator, found = np.random.default_rng(0), 0
    for _ in range(2000):
        shape = tuple(generator.integers(1, 6, generator.integers(1, 5)).tolist())
        base = np.arange(np.prod(shape)).reshape(shape)
        view = base
        for _ in range(generator.integers(1, 4)):
            kind, axis = generator.integers(5), int(generator.integers(view.ndim))
            if kind == 0:
                view = view.transpose(generator.permutation(view.ndim))
            elif kind == 1:
                first = int(generator.integers(view.shape[axis]))
                view = view[(slice(None),) * axis + (slice(first, None, int(generator.integers(1, 3))),)]
            elif kind == 2 and view.ndim > 1:
                view = view[(slice(None),) * axis + (int(generator.integers(view.shape[axis])),)]
            elif kind == 3:
                view = np.flip(view, axis)
            else:
                view = np.broadcast_to(view[None], (2, *view.shape))
        strides = tuple(s // base.itemsize for s in view.strides)
        offset = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // base.itemsize
        steps = view_steps(shape, View(view.shape, strides, offset))
        if steps is not None:
            found += 1
            np.testing.assert_array_equal(shown(base, steps), view)
    assert found > 1700


def test_formulas_are_found_or_refused() -> None:
    sizes = [(4, 6), (5, 6), (4, 7), (6, 9), (9, 11)]
    for function, exists in (
        (lambda a, b: 3 * a * b, True), (lambda a, b: a + 2 * b - 1, True), (lambda a, b: 7 * b, True),
        (lambda a, b: a // 2, False), (lambda a, b: a * b + 1, False), (lambda a, b: 5, True),
    ):  # fmt: skip
        formula = formula_of([function(*at) for at in sizes], sizes)
        assert (formula is not None) == exists
        if formula is not None:
            assert formula.at((11, 13)) == function(11, 13)


def test_a_file_that_the_checker_refuses_takes_no_other_s_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, path = nn.Linear(3, 2).to("cpu").eval(), tmp_path / "net.onnx"
    dl.onnx.export(net, numbers(2, 3), path)
    before = path.read_bytes()

    def refuse(*args: Any, **options: Any) -> None:
        raise onnx.checker.ValidationError

    monkeypatch.setattr(onnx.checker, "check_model", refuse)
    with pytest.raises(onnx.checker.ValidationError):
        dl.onnx.export(net, numbers(5, 3), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]
