"""Parametrizations, norms of weights, pruning, fusion and lazy layers beside PyTorch's."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import numpy as np
import pytest

import dl4all as dl

torch = pytest.importorskip("torch", reason="results are compared with PyTorch's")


def numbers(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def load(ours: Any, theirs: Any) -> None:
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict({name: value.numpy() for name, value in state.items()})


def assert_same_step(ours: Any, theirs: Any, x: Any, device: str, tolerance: float = 1e-5) -> None:
    """Results, gradients of all parameters, and buffers afterwards."""
    ours.to(device)
    got, expected = ours(dl.tensor(x, device=device)), theirs(torch.tensor(x))
    np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=tolerance)
    (got**2).sum().backward()
    (expected**2).sum().backward()
    own = dict(ours.named_parameters())
    assert list(own) == [name for name, _ in theirs.named_parameters()]
    for name, p in theirs.named_parameters():
        scale = max(1.0, float(p.grad.abs().max()))
        np.testing.assert_allclose(
            own[name].grad.numpy(), p.grad.numpy(), rtol=1e-4, atol=tolerance * scale, err_msg=name
        )
    for name, value in ours.named_buffers():
        np.testing.assert_allclose(
            value.numpy(), theirs.get_buffer(name).numpy(), rtol=1e-4, atol=1e-4, err_msg=name
        )


LAYERS = [
    ("Linear", (5, 3), (4, 5)),
    ("Conv2d", (2, 3, 3), (1, 2, 5, 7)),
    ("ConvTranspose1d", (2, 3, 3), (1, 2, 7)),
]


@pytest.mark.parametrize(("layer", "args", "shape"), LAYERS)
@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
@pytest.mark.parametrize("old", [False, True])
def test_norms(layer: str, args: Any, shape: Any, kind: str, old: bool, device: str) -> None:
    made = []
    for library in (dl, torch):
        utils = library.nn.utils
        normalize = getattr(utils if old else utils.parametrizations, kind)
        if old and library is torch and kind == "weight_norm":
            with pytest.warns(FutureWarning, match="weight_norm"):
                made.append(normalize(getattr(library.nn, layer)(*args)))
        else:
            made.append(normalize(getattr(library.nn, layer)(*args)))
    ours, theirs = made
    load(ours, theirs)
    assert_same_step(ours, theirs, numbers(*shape), device)
    assert_same_step(ours.eval(), theirs.eval(), numbers(*shape), device)
    weight = ours.weight.detach().numpy()
    if old:
        getattr(dl.nn.utils, f"remove_{kind}")(ours)
    else:
        dl.nn.utils.parametrize.remove_parametrizations(ours, "weight")
        assert type(ours) is getattr(dl.nn, layer)
    assert sorted(ours.state_dict()) == ["bias", "weight"]
    np.testing.assert_allclose(ours.weight.detach().numpy(), weight, rtol=1e-5, atol=1e-6)


def test_weight_norm_loads_the_older_names() -> None:
    old = dl.nn.utils.weight_norm(dl.nn.Linear(3, 2))
    new = dl.nn.utils.parametrizations.weight_norm(dl.nn.Linear(3, 2))
    new.load_state_dict(old.state_dict())
    x = dl.tensor(numbers(4, 3), device="cpu")
    np.testing.assert_allclose(new(x).detach().numpy(), old(x).detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("kind", ["matrix_exp", "householder"])
@pytest.mark.parametrize("trivial", [True, False])
def test_orthogonal(shape: Any, kind: str, trivial: bool, device: str) -> None:
    torch.manual_seed(2)
    ours, theirs = (
        library.nn.utils.parametrizations.orthogonal(
            library.nn.Linear(*shape, bias=False), "weight", kind, use_trivialization=trivial
        )
        for library in (dl, torch)
    )
    weight = ours.weight.detach().numpy()
    product = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
    np.testing.assert_allclose(product, np.eye(len(product)), atol=1e-5)
    with torch.no_grad():  # away from where the map is the identity
        original = theirs.parametrizations.weight.original
        original += 0.3 * torch.tensor(numbers(*original.shape)).tril(-1)
    load(ours, theirs)
    assert_same_step(ours, theirs, numbers(2, shape[0]), device, 2e-5)


class Scaled(dl.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2

    def right_inverse(self, x: Any) -> Any:
        return x / 2


def test_parametrizations_of_ones_own() -> None:
    parametrize = dl.nn.utils.parametrize
    layer: Any = dl.nn.Linear(3, 2)  # a type checker knows no `parametrizations`
    before = layer.weight.detach().numpy().copy()
    parametrize.register_parametrization(layer, "weight", Scaled())
    parametrize.register_parametrization(layer, "weight", Scaled())
    np.testing.assert_allclose(layer.weight.detach().numpy(), before, rtol=1e-6)
    np.testing.assert_allclose(layer.parametrizations.weight.original.detach().numpy(), before / 4, rtol=1e-6)
    assert dl.nn.Linear in type(layer).__mro__
    assert parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    assert parametrize.type_before_parametrizations(layer) is dl.nn.Linear
    layer.weight = dl.tensor(before + 1, device="cpu")
    np.testing.assert_allclose(layer.weight.detach().numpy(), before + 1, rtol=1e-6)
    other = copy.deepcopy(layer)
    parametrize.remove_parametrizations(other, "weight", leave_parametrized=False)
    np.testing.assert_allclose(other.weight.detach().numpy(), (before + 1) / 4, rtol=1e-6)
    assert layer.weight is not layer.weight
    with parametrize.cached():
        assert layer.weight is layer.weight

    class Wider(dl.nn.Module):
        def forward(self, x: Any) -> Any:
            return dl.cat([x, x])

    with pytest.raises(dl.errors.ArgumentError, match="pass unsafe=True"):
        parametrize.register_parametrization(dl.nn.Linear(3, 2), "weight", Wider())
    with pytest.raises(dl.errors.ArgumentError, match="has no parameter or buffer 'other'"):
        parametrize.register_parametrization(layer, "other", Scaled())


# Pruning


def pruned(library: Any, weight: Any) -> list[Any]:
    """The masks that follow from the elements alone, and what a layer holds then."""
    prune = dl.nn.utils.prune if library is dl else importlib.import_module("torch.nn.utils.prune")
    layer, other = library.nn.Linear(5, 4), library.nn.Linear(5, 4)
    for each, values in ((layer, weight), (other, weight[::-1].copy() * 3)):
        each.load_state_dict({"weight": library.tensor(values), "bias": library.tensor(values[:, 0].copy())})
    found = []
    prune.l1_unstructured(layer, "weight", amount=0.25)
    found.append(layer.weight)
    prune.l1_unstructured(layer, "weight", amount=3)
    found.append(layer.weight_mask)
    prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=0)
    found.append(layer.weight_mask)
    prune.custom_from_mask(other, "bias", library.tensor([1.0, 0.0, 1.0, 1.0]))
    pairs = [(layer, "bias"), (other, "weight")]
    prune.global_unstructured(pairs, pruning_method=prune.L1Unstructured, amount=0.4)
    found += [layer.bias, other.weight, other(library.tensor(weight))]
    assert prune.is_pruned(layer)
    prune.remove(layer, "weight")
    prune.remove(layer, "bias")
    assert not prune.is_pruned(layer)
    return [
        *(value.detach().numpy() for value in found),
        sorted(layer.state_dict()),
        list(other.state_dict()),
    ]


def test_pruning() -> None:
    weight = numbers(4, 5)
    for ours, theirs in zip(pruned(dl, weight), pruned(torch, weight), strict=True):
        if isinstance(ours, list):
            assert ours == theirs
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    layer: Any = dl.nn.Linear(7, 3)
    dl.nn.utils.prune.random_unstructured(layer, "weight", amount=5)
    dl.nn.utils.prune.random_structured(layer, "bias", amount=1, dim=0)
    assert (int((layer.weight == 0).sum()), int((layer.bias == 0).sum())) == (5, 1)
    with pytest.raises(dl.errors.ArgumentError, match="expected a fraction"):
        dl.nn.utils.prune.l1_unstructured(layer, "weight", amount=1.5)


# Vectors and fusion


def test_vectors_of_parameters(device: str) -> None:
    net = dl.nn.Sequential(dl.nn.Linear(3, 2), dl.nn.Linear(2, 1)).to(device)
    vector = dl.nn.utils.parameters_to_vector(net.parameters())
    assert vector.shape == (11,)
    dl.nn.utils.vector_to_parameters(vector.detach() * 2, net.parameters())
    np.testing.assert_allclose(
        dl.nn.utils.parameters_to_vector(net.parameters()).detach().numpy(), vector.detach().numpy() * 2
    )
    with pytest.raises(dl.errors.ShapeError, match="a vector of 11 elements"):
        dl.nn.utils.vector_to_parameters(vector[:5], net.parameters())


@pytest.mark.parametrize("transposed", [False, True])
def test_fusion(transposed: bool) -> None:
    bn = torch.nn.BatchNorm2d(3)
    bn(torch.tensor(numbers(5, 3, 2, 2) + 1))
    conv = (torch.nn.ConvTranspose2d if transposed else torch.nn.Conv2d)(2, 3, 3, bias=False)
    args = (conv.weight, None, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    ours = [dl.tensor(a.detach().numpy()) if isinstance(a, torch.Tensor) else a for a in args]
    fused: Any = dl.nn.utils.fuse_conv_bn_weights  # a list stands for arguments of several types
    got = fused(*ours, transpose=transposed)
    expected = torch.nn.utils.fuse_conv_bn_weights(*args, transpose=transposed)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-6)


# Lazy layers


def test_lazy_layers(device: str) -> None:
    net = dl.nn.Sequential(
        dl.nn.LazyConv2d(4, 3, groups=2), dl.nn.LazyBatchNorm2d(), dl.nn.Flatten(), dl.nn.LazyLinear(5)
    ).to(device)
    weight = net[3].weight
    assert isinstance(weight, dl.nn.UninitializedParameter)
    assert isinstance(net[3], dl.nn.Linear)
    optimizer = dl.optim.SGD(net.parameters(), lr=0.1)
    x = dl.tensor(numbers(3, 2, 5, 4), device=device)
    result = net(x)
    assert (result.shape, net[3].weight is weight, weight.shape) == ((3, 5), True, (5, 24))
    assert [type(layer).__name__ for layer in net] == ["Conv2d", "BatchNorm2d", "Flatten", "Linear"]
    before = weight.detach().numpy().copy()
    result.sum().backward()
    optimizer.step()
    assert (weight.detach().numpy() != before).any()
    other = dl.nn.Sequential(dl.nn.LazyConv2d(4, 3, groups=2), dl.nn.LazyBatchNorm2d())
    other.load_state_dict({name: value for name, value in net.state_dict().items() if name[0] in "01"})
    np.testing.assert_array_equal(other[0].weight.detach().numpy(), net[0].weight.detach().numpy())
    with pytest.raises(dl.errors.ShapeError, match="expected an input of 3 or 4 axes"):
        dl.nn.LazyConv2d(4, 3)(dl.tensor(numbers(3, 2)))


def test_an_optimizer_goes_on_with_pruned_parameters() -> None:
    layer: Any = dl.nn.Linear(3, 2)
    weight = layer.weight
    optimizer = dl.optim.SGD(layer.parameters(), lr=0.5)
    dl.nn.utils.prune.ln_structured(layer, "weight", 1, 2, 0)
    assert layer.weight_orig is weight
    dl.nn.utils.prune.remove(layer, "weight")
    kept = layer.weight
    assert kept is weight
    assert (kept == 0).all(1).sum().item() == 1
    before = kept.detach().clone()
    layer(dl.ones(4, 3)).sum().backward()
    optimizer.step()
    assert dl.allclose(layer.weight, before - 2.0)
