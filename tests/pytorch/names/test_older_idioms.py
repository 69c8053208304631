"""What scripts of any year write: ``Variable``, ``x.new``, notes on parameters, sparse buffers, trees."""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils._pytree

import dl4all as dl
from dl4all.pytorch.names.utils import _pytree

LIBRARIES = [pytest.param(dl, id="dl4all"), pytest.param(torch, id="torch")]


@pytest.mark.parametrize("library", LIBRARIES)
def test_variables(library: Any) -> None:
    Variable = library.autograd.Variable
    x = library.rand(3, 2, requires_grad=True)
    y = Variable(x * 2)
    assert (y.requires_grad, y.grad_fn, y.is_leaf) == (False, None, True)
    z = Variable(library.ones(3), requires_grad=True)
    (z * 5).sum().backward()
    assert z.grad.tolist() == [5.0, 5.0, 5.0]
    assert isinstance(x, Variable)
    assert isinstance(library.nn.Parameter(y), Variable)
    assert not isinstance([1.0], Variable)
    with pytest.raises(TypeError, match="tensor"):
        Variable([1.0, 2.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert not Variable(y, volatile=True).requires_grad
        with pytest.raises(ValueError, match="volatile"):
            Variable(y, volatile=True, requires_grad=True)
    assert "no_grad" in str(caught[0].message)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_new(library: Any, dtype: str) -> None:
    x = library.arange(6, dtype=getattr(library, dtype)).reshape(2, 3)
    assert [tuple(y.shape) for y in (x.new(), x.new(2), x.new(4, 0, 5), x.new(x.size()))] == [
        (0,), (2,), (4, 0, 5), (2, 3),
    ]  # fmt: skip
    for data in ([[1, 2], [3, 4]], np.array([3, 5]), (7, 8, 9)):
        made = x.new(data)
        assert made.tolist() == np.asarray(data).tolist()
        assert made.dtype == x.dtype
    assert x.new(1, 2).zero_().tolist() == [[0, 0]]


@pytest.mark.parametrize("library", LIBRARIES)
def test_notes_on_tensors(library: Any) -> None:
    layer = library.nn.Linear(3, 2)
    layer.weight.no_decay = True
    x = library.rand(3)
    x.note = "mine"
    assert [getattr(p, "no_decay", False) for p in layer.parameters()] == [True, False]
    assert x.note == "mine"
    assert not hasattr(x + 1, "note")


@pytest.mark.parametrize("library", LIBRARIES)
def test_split_by_name(library: Any) -> None:
    parts = library.arange(7).split(split_size=[3, 4], dim=0)
    assert [part.tolist() for part in parts] == [[0, 1, 2], [3, 4, 5, 6]]
    assert [len(part) for part in library.arange(7).split(split_size=3)] == [3, 3, 1]


def test_sparse_buffers(device: str) -> None:
    values = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    values[values < 0] = 0

    class Heads(dl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("heads", dl.from_numpy(values).to_sparse(), persistent=False)
            self.scale = dl.nn.Parameter(dl.rand(7))

    module: Any = Heads().to(device)
    assert str(module.heads.device) == device
    assert module.heads.to_dense().cpu().tolist() == values.tolist()
    result = module.heads @ module.scale.unsqueeze(1)
    expected = values @ module.scale.detach().cpu().numpy()[:, None]
    np.testing.assert_allclose(result.detach().cpu().numpy(), expected, rtol=1e-5, atol=1e-6)
    assert list(module.state_dict()) == ["scale"]
    assert [name for name, _ in module.named_buffers()] == ["heads"]
    assert module.double().heads.dtype == np.float64
    module.heads = dl.from_numpy(values.T.copy()).to_sparse()
    assert tuple(module.heads.shape) == (7, 5)


Point = namedtuple("Point", "x y")
TREES: list[Any] = [
    3, None, (), [1, (2, {"a": 3, "b": [4, None]})], Point([1], 2), deque([1, 2], maxlen=4),
    OrderedDict(b=1, a=(2,)), defaultdict(list, {"k": [1, 2]}), {"only": {}},
]  # fmt: skip


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_trees(tree: Any) -> None:
    leaves, spec = _pytree.tree_flatten(tree)
    assert leaves == torch.utils._pytree.tree_leaves(tree)
    assert spec.num_leaves == len(leaves)
    back = _pytree.tree_unflatten(leaves, spec)
    assert back == tree
    assert type(back) is type(tree)
    doubled = _pytree.tree_map(lambda leaf: (leaf,), tree)
    assert doubled == torch.utils._pytree.tree_map(lambda leaf: (leaf,), tree)
    negative = _pytree.tree_map_only(int, lambda leaf: -leaf, tree)
    assert negative == torch.utils._pytree.tree_map_only(int, lambda leaf: -leaf, tree)


def test_trees_together() -> None:
    one, other = {"a": dl.ones(2), "b": [3]}, {"b": [(5, 6)], "a": 7}
    assert _pytree.tree_map(lambda x, y: y, one, other) == {"a": 7, "b": [(5, 6)]}
    assert _pytree.tree_leaves([1, (2, 3)], is_leaf=lambda part: isinstance(part, tuple)) == [1, (2, 3)]
    with pytest.raises(dl.errors.ArgumentError, match="expected a list of 1, got 7"):
        _pytree.tree_map(lambda x, y: y, one, {"a": 1, "b": 7})
    with pytest.raises(dl.errors.ArgumentError, match="expected 2 leaves, got 1"):
        _pytree.tree_unflatten([1], _pytree.tree_flatten((1, 2))[1])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "function",
    [
        lambda t: np.clip(t, a_min=-0.5, a_max=0.999), lambda t: np.reshape(t, (5, -1)), np.squeeze,
        lambda t: np.round(t, 1), np.cumsum, np.transpose, lambda t: np.cumsum(t, 0),
    ],
)  # fmt: skip
def test_functions_of_numpy_that_return_tensors(library: Any, function: Any) -> None:
    values = np.random.default_rng(2).standard_normal((3, 1, 5)).astype(np.float32)
    result = function(library.from_numpy(values))
    assert isinstance(result, library.Tensor)
    assert tuple(result.shape) == function(values).shape
    np.testing.assert_allclose(result.numpy(), function(values), rtol=1e-6)


def test_tensors_as_one_and_back() -> None:
    from dl4all._utils import _flatten_dense_tensors, _unflatten_dense_tensors

    tensors = [dl.rand(3, 5).t(), dl.rand(0), dl.rand(()), dl.rand(2, 1, 7)]
    flat = _flatten_dense_tensors(tensors)
    assert tuple(flat.shape) == (30,)
    for tensor, part in zip(tensors, _unflatten_dense_tensors(flat, tensors), strict=True):
        assert part.tolist() == tensor.tolist()
    with pytest.raises(dl.errors.ShapeError, match="expected 29 elements along one axis"):
        _unflatten_dense_tensors(flat, tensors[:2] + tensors[3:])


@pytest.mark.parametrize("library", LIBRARIES)
def test_sizes_of_another_tensor(library: Any) -> None:
    x = library.rand(3, 0, 5)
    assert tuple(library.FloatTensor(x.shape).shape) == (3, 0, 5)
    assert tuple(library.Tensor(x.size()).shape) == (3, 0, 5)
    assert library.FloatTensor((3, 2)).tolist() == [3.0, 2.0]
    filled = library.FloatTensor(library.rand(7, 2).shape).uniform_(-0.5, 0.5)
    assert tuple(filled.shape) == (7, 2)
    assert float(filled.abs().max()) <= 0.5


@pytest.mark.parametrize("library", LIBRARIES)
def test_names_of_devices_that_are_not_here(library: Any) -> None:
    for spelled, kind, index in (("cuda", "cuda", None), ("cuda:1", "cuda", 1), ("mps", "mps", None)):
        device = library.device(spelled)
        assert (device.type, device.index, str(device)) == (kind, index, spelled)
        assert library.device("cpu").type != device.type
        assert device != library.device("cpu")
        assert device == library.device(spelled)


def test_devices_that_are_not_here_are_refused_where_they_are_used() -> None:
    cuda = dl.device("cuda")
    assert str(dl.device("cuda", 2)) == "cuda:2"
    uses = (
        lambda: dl.zeros(2, device=cuda), lambda: dl.ones(3).to(cuda), lambda: dl.nn.ReLU().to(cuda),
        lambda: dl.nn.Linear(2, 3, device=cuda), cuda.__enter__, lambda: dl.set_default_device(cuda),
    )  # fmt: skip
    for use in uses:
        with pytest.raises(dl.errors.UnknownDeviceError, match="unknown device 'cuda'; use auto"):
            use()
    with pytest.raises(dl.errors.UnknownDeviceError, match="unknown device 'cuba'"):
        dl.device("cuba")
