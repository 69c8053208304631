"""Networks by PyTorch's exporters: the results of ONNX Runtime, at other sizes, compiled, and gradients."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import dl4all as dl
from tests.support.exported_networks import NETWORKS, exported, other_sizes
from tests.support.onnx_models import error, model, node, reference, value
from tests.support.subcases import FULL, each

TOLERANCE = 5e-6  # of the largest result
CALLS = 5  # of which the last replay what the first have shown

networks = pytest.mark.parametrize("name", list(NETWORKS))


@networks
def test_results_are_onnx_runtime_s_at_other_sizes_and_replayed(name: str, device: str) -> None:
    content, _, inputs, axes = exported(name)
    module = dl.onnx.load(content, device=device)
    compiles = device != "cpu" or name != "functions"  # whose topk and such wait there
    for given in ({n: t.numpy() for n, t in inputs.items()}, other_sizes(inputs, axes)):
        wanted = reference(content, given)
        with dl.no_grad():
            results = [module(**given) for _ in range(CALLS if compiles else 1)]
        for result in (results[0], results[-1]):
            for got, want in zip(result if isinstance(result, tuple) else (result,), wanted, strict=True):
                assert error(got, want) < TOLERANCE
    if compiles:
        assert module._compiled.specializations, "no call was replayed"


@each("name", ["resnet", "bert", "lstm", "functions"] if not FULL else list(NETWORKS))
def test_the_newer_exporter_s_files_give_the_same(name: str) -> None:
    content, _, inputs, _ = exported(name, dynamo=True)
    module = dl.onnx.load(content, device="cpu")
    given = [tensor.numpy() for tensor in inputs.values()]
    wanted = reference(content, dict(zip(module.input_names, given, strict=True)))
    with dl.no_grad():
        result = module(*given)
    for got, want in zip(result if isinstance(result, tuple) else (result,), wanted, strict=True):
        assert error(got, want) < TOLERANCE


@each("name", ["resnet", "vision_transformer", "lstm", "convnext"])
def test_gradients_reach_the_parameters(name: str) -> None:
    content, network, inputs, _ = exported(name, training=True)
    module = dl.onnx.load(content, device="cpu")
    x = inputs["x"]
    for parameter in network.parameters():
        parameter.grad = None
    network.eval()(x).square().mean().backward()
    for _ in range(4):  # the last by a compiled call
        module.zero_grad()
        module(dl.tensor(x.numpy(), device="cpu")).square().mean().backward()
    found = {n: p.grad.numpy() for n, p in module.named_parameters() if p.grad is not None}
    assert len(found) == len(list(module.parameters())), "a parameter has no gradient"
    for own, theirs in network.named_parameters():
        # Convolutions have the factors of their batch norms in them, which scale their gradients.
        if own in found and found[own].shape == theirs.shape and name != "resnet":
            np.testing.assert_allclose(found[own], np.asarray(theirs.grad), rtol=2e-3, atol=2e-5, err_msg=own)


def test_parameters_have_pytorch_s_names_and_states_load() -> None:
    content, network, _, _ = exported("bert")
    module = dl.onnx.load(content, device="cpu")
    words = network.get_parameter("words.weight").detach().numpy()
    names = dict(module.named_parameters())
    assert {"words.weight", "norm.bias", "attention.qkv.bias"} <= names.keys()
    np.testing.assert_array_equal(names["words.weight"].detach().numpy(), words)
    state = module.state_dict()
    state["words.weight"] = state["words.weight"] * 2
    module.load_state_dict(state)
    np.testing.assert_array_equal(names["words.weight"].detach().numpy(), 2 * words)


@each("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_compute_the_same_and_train_apart(copied: Any) -> None:
    content, _, inputs, _ = exported("gpt")
    module = dl.onnx.load(content, device="cpu")
    given = [tensor.numpy() for tensor in inputs.values()]
    with dl.no_grad():
        wanted = module(*given)[0].numpy()
        twin = copied(module)
        for _ in range(CALLS):
            np.testing.assert_array_equal(twin(*given)[0].numpy(), wanted)
        next(twin.parameters()).mul_(2)
        assert not np.array_equal(twin(*given)[0].numpy(), wanted)
        np.testing.assert_array_equal(module(*given)[0].numpy(), wanted)


def test_a_module_moves(device: str) -> None:
    content, _, inputs, _ = exported("bert")
    module = dl.onnx.load(content, device="cpu")
    given = [tensor.numpy() for tensor in inputs.values()]
    with dl.no_grad():
        wanted = module(*given).numpy()
        moved = module.to(device)
        assert moved is module
        assert module.device.name == device
        for _ in range(CALLS):
            assert error(module(*given), wanted) < TOLERANCE


def test_batch_norms_are_folded_and_shapes_are_not_waited_for() -> None:
    content, _, inputs, _ = exported("resnet", training=True)
    kinds = [node.op_type for node in onnx.load_from_string(content).graph.node]
    module = dl.onnx.load(content, device="null:0")
    assert "BatchNormalization" in kinds
    assert not any(node.op_type == "BatchNormalization" for node in module.graph.nodes)
    for name in ("bert", "gpt", "vision_transformer"):
        content, _, inputs, axes = exported(name)
        module = dl.onnx.load(content, device="null:0")
        module(*other_sizes(inputs, axes).values())  # a device that has no numbers would give zeros
        assert not module.waits
        shapes = sum(
            node.op_type in ("Shape", "Gather", "Unsqueeze", "Constant") for node in module.graph.nodes
        )
        assert shapes < sum(1 for node in onnx.load_from_string(content).graph.node), name


class Detector(torch.nn.Module):
    """Boxes around the cells of a grid, and scores of their classes."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.BatchNorm2d(8), torch.nn.SiLU(),
            torch.nn.Conv2d(8, 16, 3, 2, 1), torch.nn.ReLU(),
        )  # fmt: skip
        self.sides, self.classes = torch.nn.Conv2d(16, 4, 1), torch.nn.Conv2d(16, 3, 1)

    def forward(self, x: torch.Tensor) -> Any:
        features = self.features(x)
        height, width = features.shape[2:]
        sides = self.sides(features).flatten(2).exp() * 2
        y = torch.arange(height).repeat_interleave(width)
        z = torch.arange(width).repeat(height)
        boxes = torch.stack([y - sides[:, 0], z - sides[:, 1], y + sides[:, 2], z + sides[:, 3]], -1)
        return boxes, self.classes(features).flatten(2).sigmoid()


def test_a_detector_that_chooses_boxes(device: str) -> None:
    torch.manual_seed(0)
    axes = {"x": {0: "batch", 2: "height", 3: "width"}}
    file: Any = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Detector().eval(), (torch.randn(2, 3, 32, 32),), file, input_names=["x"],
            output_names=["boxes", "scores"], dynamic_axes=axes, opset_version=17, dynamo=False,
        )  # fmt: skip
    proto = onnx.load_from_string(file.getvalue())
    for name, number in (("most", np.int64(5)), ("overlap", np.float32(0.4)), ("least", np.float32(0.45))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([number]), name))
    names = "boxes scores most overlap least"
    proto.graph.node.append(node("NonMaxSuppression", names, "selected"))
    columns = onnx.numpy_helper.from_array(np.array([0, 2]), "columns")
    proto.graph.initializer.append(columns)
    proto.graph.node.append(node("Gather", "selected columns", "places", axis=1))
    proto.graph.node.append(node("GatherND", "boxes places", "chosen"))
    proto.graph.output.append(value("selected", np.int64, ["kept", 3]))
    proto.graph.output.append(value("chosen", np.float32, ["kept", 4]))
    onnx.checker.check_model(proto, full_check=True)
    content = proto.SerializeToString()
    module = dl.onnx.load(content, device=device)
    for shape in ((2, 3, 32, 32), (1, 3, 45, 27), (3, 3, 64, 40)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        wanted = reference(content, {"x": x})
        with dl.no_grad():
            got = module(x)
        assert len(wanted[2]) > shape[0]
        for one, other in zip(got, wanted, strict=True):
            assert one.shape == other.shape
            assert error(one, other) < TOLERANCE
    assert "NonMaxSuppression" in module.waits


@each("kind", ["AveragePool", "MaxPool"])
def test_a_window_larger_than_the_image(kind: str, device: str) -> None:
    """As a pool over 1,280 by 1,280 elements that ends transformers' EfficientNet."""
    more = {"count_include_pad": 1, "pads": [1, 0, 1, 0]} if kind == "AveragePool" else {}
    nodes = [node(kind, "x", "y", kernel_shape=[5, 7], strides=[5, 7], ceil_mode=1, **more)]
    content = model(nodes, [value("x", np.float32, [2, 3, "h", "w"])], [value("y")]).SerializeToString()
    for shape in ((2, 3, 2, 3), (2, 3, 3, 8), (2, 3, 9, 4)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        [wanted] = reference(content, {"x": x})
        assert error(dl.onnx.load(content, device=device)(x), wanted) < TOLERANCE
