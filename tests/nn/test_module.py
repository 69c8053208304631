"""The tree of parameters and buffers: registration, state dicts and moves between devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import UnknownDeviceError, WeightsError
from dl4all.nn import Parameter
from dl4all.nn.module import Module

torch = pytest.importorskip("torch", reason="names and their order are compared with PyTorch's")


class Inner(Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("early", dl.zeros(2, device="cpu"))
        self.w = Parameter(dl.rand(2, 3, device="cpu"))
        self.plain = dl.ones(4, device="cpu")  # a tensor, but neither learned nor registered
        self.none = None

    early: dl.Tensor


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = dl.nn.Linear(3, 2)
        self.scale = Parameter(dl.rand(1, device="cpu"))
        self.inner = Inner()
        self.layers = dl.nn.Sequential(dl.nn.Conv2d(1, 2, 1), dl.nn.BatchNorm2d(2))


NAMES = [
    "scale", "first.weight", "first.bias", "inner.w", "inner.early", "layers.0.weight", "layers.0.bias",
    "layers.1.weight", "layers.1.bias", "layers.1.running_mean", "layers.1.running_var",
    "layers.1.num_batches_tracked",
]  # fmt: skip


def copies(module: Module) -> dict[str, Any]:
    return {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}


def assert_same(state: dict[str, Any], other: dict[str, Any]) -> None:
    assert list(state) == list(other)
    for name, array in state.items():
        np.testing.assert_array_equal(array, other[name])


# Registration


def test_names() -> None:
    net = Net()
    assert list(net.state_dict()) == NAMES
    buffers = ["inner.early", *NAMES[-3:]]
    assert [name for name, _ in net.named_buffers()] == buffers
    assert [name for name, _ in net.named_parameters()] == [name for name in NAMES if name not in buffers]
    assert len(list(net.parameters())) + len(list(net.buffers())) == len(NAMES)
    assert [name for name, _ in net.named_children()] == ["first", "inner", "layers"]
    assert [type(m).__name__ for m in net.modules()] == [
        "Net",
        "Linear",
        "Inner",
        "Sequential",
        "Conv2d",
        "BatchNorm2d",
    ]
    assert all(isinstance(p, Parameter) for p in net.parameters())


def test_a_parameter_is_a_tensor_with_the_same_memory(device: str) -> None:
    source = dl.rand(2, 3, device=device)
    parameter = Parameter(source.T)
    assert parameter.storage is source.storage
    np.testing.assert_array_equal(parameter.detach().numpy(), source.numpy().T)
    for result in (parameter + 1, parameter.T, parameter[0], parameter.clone(), parameter.to("float64")):
        assert type(result) is dl.Tensor


def test_assigning_again() -> None:
    net = Net()
    net.scale = Parameter(dl.full((1,), 5.0, device="cpu"))
    net.inner.early = dl.full((2,), 7.0, device="cpu")  # still a buffer
    net.first = dl.nn.Linear(3, 4)
    assert list(net.state_dict()) == NAMES
    assert net.state_dict()["scale"].tolist() == [5]
    assert net.state_dict()["inner.early"].tolist() == [7, 7]
    assert net.state_dict()["first.weight"].shape == (4, 3)


def test_assigning_none_and_deleting() -> None:
    net = Net()
    net.first.bias = None
    net.inner.early = None  # type: ignore[assignment]
    del net.scale
    del net.layers
    assert list(net.state_dict()) == ["first.weight", "inner.w"]
    x = dl.ones(1, 3, device="cpu")
    np.testing.assert_allclose(
        net.first(x).numpy(), net.first.weight.detach().numpy().sum(1)[None], rtol=1e-6
    )
    del net.inner.early
    net.inner.early = dl.zeros(2, device="cpu")  # no buffer any more
    assert list(net.state_dict()) == ["first.weight", "inner.w"]
    with pytest.raises(AttributeError):
        net.scale  # noqa: B018


def test_a_buffer_replaced_by_a_parameter() -> None:
    net = Inner()
    net.early = Parameter(dl.ones(2, device="cpu"))
    assert [name for name, _ in net.named_buffers()] == []
    assert [name for name, _ in net.named_parameters()] == ["early", "w"]


def test_sequential() -> None:
    layers = [dl.nn.Linear(2, 3), dl.nn.ReLU(), dl.nn.Linear(3, 1)]
    net = dl.nn.Sequential(*layers)
    assert len(net) == 3
    assert list(net) == layers
    assert (net[0], net[-1]) == (layers[0], layers[2])
    assert list(net.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    x = dl.rand(4, 2, device="cpu")
    np.testing.assert_array_equal(net(x).numpy(), layers[2](layers[1](layers[0](x))).numpy())
    twice = dl.nn.Sequential(dl.nn.Linear(2, 2, bias=False))
    twice_more = dl.nn.Sequential(twice[0], twice[0])
    np.testing.assert_array_equal(twice_more(x).numpy(), twice(twice(x)).numpy())


def test_forward_must_be_defined() -> None:
    with pytest.raises(NotImplementedError, match="Inner does not define forward"):
        Inner()(dl.zeros(1, device="cpu"))


def test_modes() -> None:
    net = Net()
    assert all(module.training for module in net.modules())
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    net.layers.train()
    assert [module.training for module in net.modules()] == [False, False, False, True, True, True]


# State dicts


def test_a_state_dict_is_the_module_s_memory() -> None:
    net = Net()
    net.state_dict()["inner.early"].numpy()[:] = 3
    assert net.inner.early.tolist() == [3, 3]
    assert net.state_dict()["scale"].storage is net.scale.storage
    assert not net.state_dict()["scale"].requires_grad
    assert net.state_dict(keep_vars=True)["scale"] is net.scale


def test_loading(device: str) -> None:
    net, other = Net().to(device), Net()
    source = {
        name: np.random.default_rng(i).uniform(1, 9, a.shape)
        for i, (name, a) in enumerate(copies(other).items())
    }
    held = net.first.weight
    result = net.load_state_dict(source)
    assert result == ([], [])
    for name, tensor in net.state_dict().items():
        assert str(tensor.device) == device
        np.testing.assert_array_equal(tensor.numpy(), source[name].astype(tensor.dtype))
    assert net.first.weight is held  # whoever holds a parameter sees its new values
    assert net.state_dict()["layers.1.num_batches_tracked"].dtype == np.int64
    other.load_state_dict(net.state_dict())  # from another device, and given tensors
    assert_same(copies(other), copies(net))
    net.load_state_dict(net.state_dict())
    assert_same(copies(other), copies(net))


def test_loaded_weights_are_copies() -> None:
    net = Inner()
    source = copies(net)
    net.load_state_dict(source)
    source["w"][:] = 99
    assert not (net.w.detach().numpy() == 99).any()


def test_loading_pytorch_s_tensors() -> None:
    theirs = torch.nn.Linear(3, 2)
    ours = dl.nn.Linear(3, 2)
    ours.load_state_dict(theirs.state_dict())
    np.testing.assert_array_equal(ours.weight.detach().numpy(), theirs.weight.detach().numpy())
    theirs.load_state_dict({name: torch.from_numpy(t.numpy()) for name, t in ours.state_dict().items()})


def test_names_that_do_not_fit(device: str) -> None:
    net = Net().to(device)
    before = copies(net)
    wrong = {name: np.full_like(array, 4) for name, array in before.items()}
    for name in ("scale", "inner.w"):
        del wrong[name]
    wrong |= {"extra": np.zeros(1), "layers.9.weight": np.zeros(2)}
    wrong["first.bias"] = np.zeros(3)
    wrong["layers.0.weight"] = np.zeros((2, 1))
    with pytest.raises(WeightsError) as caught:
        net.load_state_dict(wrong)
    text = str(caught.value)
    for part in (
        "[Net] the weights do not fit",
        "missing keys: scale, inner.w",
        "unexpected keys: extra, layers.9.weight",
        "first.bias: the network has (2,), the weights (3,)",
        "layers.0.weight: the network has (2, 1, 1, 1), the weights (2, 1)",
    ):
        assert part in text
    assert_same(copies(net), before)
    with pytest.raises(WeightsError) as caught:
        net.load_state_dict(wrong, strict=False)  # shapes must fit all the same
    assert "misshapen" in str(caught.value)
    assert "missing" not in str(caught.value)
    assert_same(copies(net), before)


def test_loading_what_is_there() -> None:
    net = Net()
    before = copies(net)
    given: dict[str, Any] = {"inner.w": np.full((2, 3), 4.0), "extra": "anything"}
    result = net.load_state_dict(given, strict=False)
    assert result.missing_keys == [name for name in NAMES if name != "inner.w"]
    assert result.unexpected_keys == ["extra"]
    assert net.inner.w.tolist() == [[4] * 3] * 2
    del before["inner.w"]
    assert_same({name: array for name, array in copies(net).items() if name != "inner.w"}, before)


@pytest.mark.parametrize("wrong", ["text", None, np.array(["a", "b"]), np.array([1j, 2])], ids=repr)
def test_what_is_no_array_of_numbers(wrong: Any) -> None:
    net = Inner()
    before = copies(net)
    with pytest.raises(WeightsError, match="early must be an array of numbers"):
        net.load_state_dict({"w": np.zeros((2, 3)), "early": wrong})
    assert_same(copies(net), before)


def test_numbers_and_lists_have_a_shape_too() -> None:
    net = Inner()
    net.load_state_dict({"early": [1, 2], "w": np.zeros((2, 3))})  # type: ignore[dict-item]
    assert net.early.tolist() == [1, 2]
    with pytest.raises(WeightsError, match=r"early: the network has \(2,\), the weights \(\)"):
        net.load_state_dict({"early": 1.0, "w": np.zeros((2, 3))})  # type: ignore[dict-item]


# Devices


def test_to_a_device_and_back(device: str) -> None:
    net = Net().eval()
    before = copies(net)
    held = net.state_dict(keep_vars=True)
    assert net.to(device) is net
    assert {str(t.device) for t in net.state_dict().values()} == {device}
    assert str(net.inner.plain.device) == "cpu"
    assert all(held[name] is tensor for name, tensor in net.state_dict(keep_vars=True).items())
    assert_same(copies(net), before)
    x = dl.rand(5, 3, device="cpu")
    there = net.first(x.to(device)).numpy()
    net.to("cpu")
    assert_same(copies(net), before)
    np.testing.assert_allclose(net.first(x).numpy(), there, rtol=1e-5, atol=1e-6)


def test_a_shared_parameter_moves_once(device: str) -> None:
    net = dl.nn.Sequential(dl.nn.Linear(2, 2), dl.nn.Linear(2, 2))
    net[1].weight = net[0].weight
    net.to(device)
    assert net[0].weight is net[1].weight


def test_an_unknown_device() -> None:
    net = Inner()
    with pytest.raises(UnknownDeviceError, match="'tpu'"):
        net.to("tpu")
    assert {str(t.device) for t in net.state_dict().values()} == {"cpu"}


def test_to_a_dtype(device: str) -> None:
    net = dl.nn.Sequential(dl.nn.Linear(3, 2), dl.nn.BatchNorm1d(2)).to(device)
    weight, x = net[0].weight, dl.rand(5, 3, device=device)
    net(x).sum().backward()
    before, gradient = weight.detach().numpy(), weight.grad.numpy()
    for convert, name in ((net.double, "float64"), (net.half, "float16"), (net.float, "float32")):
        assert convert() is net
        assert net[0].weight is weight
        assert {str(t.dtype) for t in net.state_dict().values()} == {name, "int64"}  # which counts batches
        assert (str(weight.grad.dtype), str(weight.grad.device)) == (name, device)
        assert str(net(x.to(name)).dtype) == name
    np.testing.assert_allclose(weight.detach().numpy(), before, rtol=1e-3)
    np.testing.assert_allclose(weight.grad.numpy(), gradient, rtol=1e-3, atol=1e-6)
    net.to("cpu", "float64")
    assert (str(weight.device), str(weight.dtype), str(weight.grad.device)) == ("cpu", "float64", "cpu")
    assert net.to(dl.zeros(1, device=device)).cpu()[0].weight.dtype == np.float32


def test_to_a_dtype_of_integers() -> None:
    net = Inner()
    with pytest.raises(dl.errors.DTypeError, match="made of floats, got int32"):
        net.to("int32")
    assert {str(t.dtype) for t in net.state_dict().values()} == {"float32"}


# By name


def test_parts_by_name() -> None:
    norm = dl.nn.BatchNorm1d(2)
    net = dl.nn.Sequential(dl.nn.Linear(3, 2), dl.nn.Sequential(norm))
    assert net.get_submodule("") is net
    assert net.get_submodule("1.0") is norm
    assert net.get_parameter("1.0.weight") is norm.weight
    assert net.get_buffer("1.0.running_mean") is norm.running_mean
    for wrong, message in (
        (lambda: net.get_submodule("2"), "no module '2'; it has"),
        (lambda: net.get_parameter("1.0.running_mean"), "no parameter '1.0.running_mean'"),
        (lambda: net.get_buffer("0.weight"), "no buffer '0.weight'"),
    ):
        with pytest.raises(dl.errors.ArgumentError, match=message):
            wrong()


def test_parts_are_added_by_name() -> None:
    net = dl.nn.Module()
    net.add_module("layer", dl.nn.Linear(3, 2))
    net.register_parameter("scale", dl.nn.Parameter(dl.ones(2, device="cpu")))
    net.register_parameter("missing", None)
    assert sorted(net.state_dict()) == ["layer.bias", "layer.weight", "scale"]
    with pytest.raises(dl.errors.ModuleError, match="expected a Parameter for 'other', got Tensor"):
        net.register_parameter("other", dl.ones(2))  # type: ignore[arg-type]
    with pytest.raises(dl.errors.ModuleError, match="expected a Module for 'other', got Parameter"):
        net.add_module("other", net.scale)  # type: ignore[attr-defined]
    with pytest.raises(dl.errors.ModuleError, match=r"'a\.b' is no name of an attribute"):
        net.add_module("a.b", dl.nn.Module())


# Deeply nested


def test_modules_nested_more_deeply_than_python_calls_functions() -> None:
    net: Module = dl.nn.Linear(3, 2)
    for _ in range(2000):
        net = dl.nn.Sequential(net)
    name = "0." * 2000
    assert list(net.state_dict()) == [f"{name}weight", f"{name}bias"]
    assert [path for path, _ in net.named_parameters("net")] == [f"net.{name}weight", f"net.{name}bias"]
    assert sum(1 for _ in net.modules()) == 2001
    net.eval().requires_grad_(False).to("cpu", "float64").zero_grad()
    weights = {key: np.full(value.shape, 2.0) for key, value in net.state_dict().items()}
    net.load_state_dict(weights)
    assert net.get_parameter(f"{name}weight").tolist() == [[2.0] * 3] * 2


def test_a_module_that_holds_itself() -> None:
    net = dl.nn.Sequential(dl.nn.Linear(3, 2))
    net.add_module("inner", dl.nn.Sequential(net))
    message = r"^\[Sequential\] inner\.0 is a module that it is part of; remove it$"
    for use in (net.state_dict, lambda: list(net.parameters()), lambda: net.to("cpu")):
        with pytest.raises(dl.errors.ArgumentError, match=message):
            use()
    assert len(list(net.modules())) == 3


def test_a_module_in_two_places_has_both_names() -> None:
    shared = dl.nn.Linear(3, 2)
    net = dl.nn.Sequential(shared, dl.nn.Sequential(shared))
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.0.weight", "1.0.bias"]
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias"]


def test_parameters_are_made_on_the_default_device(device: str) -> None:
    """As other tensors are, so that a script that names no device has one."""
    with dl.device(device):
        layer, x = dl.nn.Sequential(dl.nn.Linear(3, 2), dl.nn.BatchNorm1d(2)), dl.rand(5, 3)
        assert {str(tensor.device) for tensor in (*layer.state_dict().values(), x, layer(x))} == {device}
    assert str(dl.nn.Linear(3, 2, device="cpu").weight.device) == "cpu"
