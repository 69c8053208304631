"""The methods of modules with PyTorch's forms and answers, and what a module refuses to hold."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ModuleError

torch = pytest.importorskip("torch", reason="modules are compared with PyTorch's")


class Net(dl.nn.Module):
    mean: dl.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = dl.nn.Linear(3, 2)
        self.scale = dl.nn.Parameter(dl.rand(2, device="cpu"))
        self.register_buffer("mean", dl.rand(2, device="cpu"))
        self.register_buffer("scratch", dl.rand(2, device="cpu"), persistent=False)
        self.kept = dl.nn.Buffer(dl.rand(1, device="cpu"))
        self.register_parameter("absent", None)

    def forward(self, x: Any) -> Any:
        return self.fc(x) * self.scale + self.mean


# What is refused


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("scale", dl.ones(2, device="cpu"), "cannot assign Tensor as parameter 'scale'"),
        ("absent", dl.ones(2, device="cpu"), "cannot assign Tensor as parameter 'absent'"),
        ("fc", 3, "cannot assign int as module 'fc'"),
        ("mean", [1.0], "cannot assign list as buffer 'mean'"),
    ],
)
def test_what_a_name_cannot_hold(name: str, value: Any, message: str) -> None:
    net = Net()
    before = list(net.state_dict())
    for kind in (TypeError, ModuleError):
        with pytest.raises(kind, match=message):
            setattr(net, name, value)
    assert list(net.state_dict()) == before
    setattr(net, name, None)
    with pytest.raises(TypeError, match=message):
        setattr(net, name, value)
    delattr(net, name)
    setattr(net, name, value)
    assert name not in net.state_dict()


def test_a_forgotten_init() -> None:
    class Forgetful(dl.nn.Module):
        def __init__(self, value: Any) -> None:
            self.value = value

    advice = r"call super\(\).__init__\(\) first in the __init__ of Forgetful"
    for value in (dl.nn.Linear(1, 1), dl.nn.Parameter(dl.ones(1))):
        with pytest.raises(AttributeError, match=advice):
            Forgetful(value)
    plain = Forgetful(3)
    for use in (lambda: plain(1), plain.state_dict, lambda: plain.register_buffer("b", None)):
        with pytest.raises(AttributeError, match=advice):
            use()


def test_names_that_are_taken() -> None:
    net = Net()
    with pytest.raises(ModuleError, match="attribute 'forward' already exists"):
        net.register_buffer("forward", dl.ones(1))
    with pytest.raises(ModuleError, match="attribute 'fc' already exists"):
        net.register_parameter("fc", dl.nn.Parameter(dl.ones(1)))


# The tree


def test_buffers_that_are_not_saved() -> None:
    net = Net()
    assert list(net.state_dict()) == ["scale", "mean", "kept", "fc.weight", "fc.bias"]
    assert [name for name, _ in net.named_buffers()] == ["mean", "scratch", "kept"]
    assert list(net._parameters) == ["scale", "absent"]
    assert net._buffers["mean"] is net.mean
    assert list(net._modules) == ["fc"]
    net._modules["fc"] = dl.nn.Linear(3, 5)
    assert net.fc.out_features == 5


def pairs() -> list[Any]:
    def build(library: Any) -> Any:
        shared = library.nn.Linear(2, 2)
        net = library.nn.Sequential(library.nn.Sequential(shared, library.nn.BatchNorm1d(2)), shared)
        net[0][0].weight = net[1].weight
        return net

    return [build(dl), build(torch)]


def test_walks_are_pytorchs() -> None:
    found = []
    for net in pairs():
        visited: list[str] = []
        net.apply(lambda module, visited=visited: visited.append(type(module).__name__))
        found.append(
            [
                visited,
                [name for name, _ in net.named_modules(prefix="net")],
                [name for name, _ in net.named_modules(remove_duplicate=False)],
                [name for name, _ in net.named_children()],
                [name for name, _ in net.named_parameters("net")],
                [name for name, _ in net.named_parameters(recurse=False)],
                [name for name, _ in net.named_parameters(remove_duplicate=False)],
                [name for name, _ in net[0].named_buffers(prefix="x")],
                list(net.state_dict(prefix="p.")),
                type(net.get_submodule("0.1")).__name__,
            ]
        )
    assert found[0] == found[1]


def test_signatures_are_pytorchs() -> None:
    """Names, order and defaults of the arguments of modules and of their methods."""
    different = {}
    for name in dir(torch.nn):
        theirs, ours = getattr(torch.nn, name), getattr(dl.nn, name, None)
        if ours is None or not (inspect.isclass(theirs) and issubclass(theirs, torch.nn.Module)):
            continue
        for method in ("__init__", "forward"):
            own, other = (inspect.signature(getattr(kind, method)).parameters for kind in (ours, theirs))
            if any(p.kind.name.startswith("VAR") for p in other.values()) or name.startswith("Lazy"):
                continue
            listed = [
                [(p.name, str(getattr(p.default, "__name__", p.default))) for p in each.values()]
                for each in (own, other)
            ]
            if listed[0] != listed[1]:
                different[f"{name}.{method}"] = listed
    # Containers compute nothing; PyTorch's base classes of recurrent layers are told their kind.
    unimportant = {
        "Module.forward", "ModuleDict.forward", "ModuleList.forward", "ParameterDict.forward",
        "ParameterList.forward", "RNNBase.__init__", "RNNBase.forward", "RNNCellBase.__init__",
        "RNNCellBase.forward",
    }  # fmt: skip
    assert {name: both for name, both in different.items() if name not in unimportant} == {}


def test_train_asks_modules_that_have_their_own() -> None:
    class Frozen(dl.nn.BatchNorm1d):
        def train(self, mode: bool = True) -> Any:
            return super().train(False)

    net = dl.nn.Sequential(dl.nn.Linear(2, 2), Frozen(2)).train()
    assert (net[0].training, net[1].training) == (True, False)
    with pytest.raises(ArgumentError, match="expected True or False"):
        net.train("yes")  # type: ignore[arg-type]


def change_containers(nn: Any) -> list[Any]:
    """What containers hold after all that changes them, by the sizes of their layers."""

    def sizes(layers: Any) -> list[int]:
        return [layer.out_features for layer in layers]

    many = nn.ModuleList(nn.Linear(1, size) for size in (2, 3, 5))
    many.insert(1, nn.Linear(1, 7))
    many[0] = nn.Linear(1, 11)
    del many[2]
    many += [nn.Linear(1, 13)]
    found: list[Any] = [sizes(many), list(many.state_dict()), sizes(many + nn.ModuleList([nn.Linear(1, 17)]))]
    chain = nn.Sequential(*many).insert(0, nn.Linear(1, 19))
    found += [chain.pop(1).out_features, sizes(chain), sizes(chain[1:]), sizes([chain[-1]])]
    named = nn.ModuleDict({"a": nn.Linear(1, 2)})
    named.update([("b", nn.Linear(1, 3))])
    found += [named.pop("a").out_features, list(named), "a" in named, len(named)]
    return found


def test_containers_change_as_pytorchs() -> None:
    assert change_containers(dl.nn) == change_containers(torch.nn)
    with pytest.raises(IndexError, match="index 3 is out of range for 2 modules"):
        dl.nn.ModuleList([dl.nn.ReLU(), dl.nn.ReLU()])[3]


# Weights


def test_zero_grad() -> None:
    net = Net()
    net(dl.rand(4, 3, device="cpu")).sum().backward()
    net.zero_grad(set_to_none=False)
    assert net.fc.weight.grad is not None
    assert not net.fc.weight.grad.numpy().any()
    net.zero_grad()
    assert net.fc.weight.grad is None


def test_loading_keeps_memory_or_assigns(device: str) -> None:
    net = Net().to(device)
    state, view = net.state_dict(), net.fc.weight.detach()[0]
    new = {name: dl.rand(*value.shape, device=device) for name, value in state.items()}
    net.load_state_dict(new)
    for name in new:
        np.testing.assert_array_equal(state[name].numpy(), new[name].numpy())
    np.testing.assert_array_equal(view.numpy(), new["fc.weight"].numpy()[0])
    net.load_state_dict({name: value.double() for name, value in new.items()}, assign=True)
    assert net.fc.weight.dtype == np.float64
    assert isinstance(net.fc.weight, dl.nn.Parameter)
    assert net.fc.weight.requires_grad


def test_places(device: str) -> None:
    layer = dl.nn.Conv2d(3, 4, 1, device=device, dtype="float64")
    assert {(str(p.device), str(p.dtype)) for p in layer.parameters()} == {(device, "float64")}
    assert layer.to(device, None, True).float().type("float16").weight.dtype == np.float16
    assert dl.nn.Linear(3, 2).to_empty(device=device).weight.shape == (2, 3)
    with pytest.raises(ModuleError, match="cannot be shared by processes"):
        layer.share_memory()


def test_copies_and_pickles() -> None:
    net = dl.nn.TransformerEncoderLayer(4, 2, 8, activation="gelu").eval()
    x = dl.rand(3, 2, 4, device="cpu")
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(other(x).detach().numpy(), net(x).detach().numpy())
        assert other.linear1.weight is not net.linear1.weight
    assert copy.deepcopy(dl.nn.functional.relu) is dl.nn.functional.relu


def test_old_reductions() -> None:
    with pytest.warns(DeprecationWarning, match="reduction='sum'"):
        assert dl.nn.MSELoss(size_average=False).reduction == "sum"


def test_softmax_without_an_axis() -> None:
    for shape in ((3, 5), (2, 3, 5), (2, 3, 5, 2)):
        x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        with pytest.warns(UserWarning, match="pass dim"):
            got = dl.nn.Softmax()(dl.tensor(x, device="cpu"))
        with pytest.warns(UserWarning, match="Implicit dimension"):
            expected = torch.nn.Softmax()(torch.tensor(x))
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5)


# One device


def test_parallel_names() -> None:
    net = Net()
    x = dl.rand(4, 3, device="cpu")
    parallel = dl.nn.DataParallel(net, device_ids=[0])
    np.testing.assert_array_equal(parallel(x).detach().numpy(), net(x).detach().numpy())
    assert parallel.module is net
    with pytest.raises(ArgumentError, match=r"expected one device.*dl\.parallel"):
        dl.nn.DataParallel(net, device_ids=[0, 1])
    with pytest.raises(dl.errors.DistError, match="there is no group of processes"):
        dl.nn.parallel.DistributedDataParallel(net)


def test_paths_of_scripts() -> None:
    from dl4all.nn.modules.batchnorm import _BatchNorm  # type: ignore[import-not-found]
    from dl4all.nn.modules.conv import _ConvNd
    from dl4all.nn.modules.loss import _Loss, _WeightedLoss
    from dl4all.nn.modules.utils import _pair, _single
    from dl4all.nn.parameter import Parameter

    assert (_pair(3), _single((1, 2))) == ((3, 3), (1, 2))
    assert isinstance(dl.nn.SyncBatchNorm(3), _BatchNorm)
    assert isinstance(dl.nn.ConvTranspose1d(1, 1, 1), _ConvNd)
    assert issubclass(_WeightedLoss, _Loss)
    assert Parameter is dl.nn.Parameter
