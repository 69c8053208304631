"""Modules of modules."""

from __future__ import annotations

import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.nn import Linear, ModuleDict, ModuleList, ReLU, Sequential


def test_sequential_by_names_slices_and_append() -> None:
    net = Sequential({"first": Linear(3, 4), "act": ReLU()}).append(Linear(4, 2))
    assert list(net.state_dict()) == ["first.weight", "first.bias", "2.weight", "2.bias"]
    assert net[0] is net.get_submodule("first")
    assert isinstance(net[-1], Linear)
    part = net[:2]
    assert isinstance(part, Sequential)
    assert list(part.state_dict()) == ["0.weight", "0.bias"]
    assert part[0] is net.get_submodule("first")
    x = dl.randn(5, 3, device="cpu")
    assert net(x).tolist() == net[2](part(x)).tolist()


def test_module_list() -> None:
    layers = ModuleList([Linear(3, 3)]).append(ReLU()).extend([Linear(3, 2)])
    assert [type(layer).__name__ for layer in layers] == ["Linear", "ReLU", "Linear"]
    assert len(layers) == 3
    assert list(layers.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert isinstance(layers[1:], ModuleList)
    assert len(layers[1:]) == 2
    with pytest.raises(ArgumentError, match=r"\[ModuleList\] layer 3 must be a Module, got <built-in"):
        layers.append(abs)  # type: ignore[arg-type]


def test_module_list_with_a_layer_left_out() -> None:
    layers = ModuleList([None, Linear(3, 3)]).append(None)
    assert (len(layers), layers[0], layers[-1], bool(layers[1])) == (3, None, None, True)
    assert list(layers.state_dict()) == ["1.weight", "1.bias"]
    layers[0] = ReLU()
    layers.insert(1, None)
    assert [type(layer).__name__ for layer in layers] == ["ReLU", "NoneType", "Linear", "NoneType"]
    del layers[1]
    assert [name for name, _ in layers.named_children()] == ["0", "1"]
    with pytest.raises(ArgumentError, match=r"\[Sequential\] layer 0 must be a Module, got None"):
        Sequential(None)


def test_module_dict() -> None:
    heads = ModuleDict({"a": Linear(3, 1), "b": Linear(3, 2)})
    assert (list(heads), len(heads), "a" in heads, "c" in heads) == (["a", "b"], 2, True, False)
    assert list(heads.keys()) == ["a", "b"]
    assert list(heads.values()) == [heads["a"], heads["b"]]
    assert dict(heads.items())["b"] is heads["b"]
    del heads["a"]
    assert list(heads.state_dict()) == ["b.weight", "b.bias"]
    with pytest.raises(ArgumentError, match="'forward' is an attribute of modules"):
        heads["forward"] = ReLU()
    with pytest.raises(ArgumentError, match=r"\[ModuleDict\] 'x' must be a Module, got 3"):
        heads["x"] = 3
