"""einops' functions and layers compute on this library's tensors what they compute on PyTorch's."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import einops
import einops.layers.torch
import numpy as np
import pytest
import torch

import dl4all as dl
import dl4all.einops

X = np.random.default_rng(3).standard_normal((2, 6, 5, 7)).astype(np.float32)


def both(array: Any) -> tuple[dl.Tensor, torch.Tensor]:
    """The same numbers as leaves of both libraries, with strides that are not contiguous."""
    ours = dl.from_numpy(array).transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
    return ours, torch.from_numpy(array).clone().requires_grad_()


FUNCTIONS: dict[str, Any] = {
    "transpose": lambda x: einops.rearrange(x, "b c h w -> w b h c"),
    "split and merge": lambda x: einops.rearrange(x, "b (c k) h w -> b (h w k) c", k=3),
    "ellipsis": lambda x: einops.rearrange(x, "b ... w -> (b w) ... 1"),
    "list": lambda x: einops.rearrange([x, 2 * x, x], "n b c h w -> b (n c) h w"),
    "repeat": lambda x: einops.repeat(x, "b c h w -> b k c (h two) w", k=3, two=2),
    **{
        name: lambda x, name=name: einops.reduce(x, "b (c k) h w -> b k w", name, k=2)
        for name in ("mean", "sum", "max", "min", "prod")
    },
    "own reduction": lambda x: einops.reduce(x, "b c h w -> b w", lambda t, axes: t.sum(axes)),
    "einsum": lambda x: einops.einsum(x, x, "b c h w, b other h w -> b c other"),
    "pack": lambda x: einops.pack([x, x[:, 0], x[:, :2]], "b * w")[0],
    "unpack": lambda x: einops.unpack(x, [[2], [3, 1], [1]], "b * h w")[1],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_and_gradients(name: str, device: str) -> None:
    array = X[:, :, :, :7] if name != "pack" else X[:, :, 0]
    ours, theirs = both(array)
    result, expected = FUNCTIONS[name](ours.to(device)), FUNCTIONS[name](theirs)
    np.testing.assert_allclose(result.detach().cpu().numpy(), expected.detach().numpy(), rtol=2e-5, atol=1e-5)
    (result**2).sum().backward()
    (expected**2).sum().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    np.testing.assert_allclose(ours.grad.cpu().numpy(), theirs.grad.numpy(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("reduction", ["any", "all"])
def test_reductions_of_booleans(reduction: Any) -> None:
    flags = X > 1.5 if reduction == "any" else X > -1.5
    result = einops.reduce(dl.from_numpy(flags), "b c h w -> c w", reduction)
    expected = einops.reduce(flags, "b c h w -> c w", reduction)
    np.testing.assert_array_equal(result.numpy(), expected)


def test_names_and_shapes() -> None:
    x = dl.from_numpy(X)
    assert einops.parse_shape(x, "b _ h w") == {"b": 2, "h": 5, "w": 7}
    assert einops.asnumpy(x).tolist() == X.tolist()
    with pytest.raises(einops.EinopsError, match="can't divide axis of length 6 in chunks of 4"):
        einops.rearrange(x, "b (c k) h w -> b c k h w", k=4)
    with pytest.raises(NotImplementedError, match="non-floating"):
        einops.reduce(dl.arange(6), "(a b) -> a", "mean", a=2)


def layers(library: Any) -> list[Any]:
    return [
        library.Rearrange("b (c k) h w -> b (h w) (c k)", k=2),
        library.Reduce("b c h w -> b c w", "max"),
        library.EinMix("b c h w -> b h w d", weight_shape="c d", bias_shape="d", c=6, d=3),
        library.EinMix("b (k c) h w -> b h (k d) w", weight_shape="k c d", k=2, c=3, d=5),
    ]


@pytest.mark.parametrize("index", range(4))
def test_layers(index: int, device: str) -> None:
    layer, other = layers(dl4all.einops)[index].to(device), layers(einops.layers.torch)[index]
    assert repr(layer) == repr(other)
    state = {name: dl.from_numpy(value.numpy()) for name, value in other.state_dict().items()}
    layer.load_state_dict(state)
    ours, theirs = both(X)
    result, expected = dl.nn.Sequential(layer)(ours.to(device)), other(theirs)
    np.testing.assert_allclose(result.detach().cpu().numpy(), expected.detach().numpy(), rtol=2e-5, atol=1e-5)
    (result**2).sum().backward()
    (expected**2).sum().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    np.testing.assert_allclose(ours.grad.cpu().numpy(), theirs.grad.numpy(), rtol=2e-4, atol=2e-4)
    for name, parameter in layer.named_parameters():
        gradient = dict(other.named_parameters())[name].grad.numpy()
        np.testing.assert_allclose(parameter.grad.cpu().numpy(), gradient, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    "imports",
    [
        "import einops, dl4all as dl",
        "import dl4all as dl, einops",
        "from einops import rearrange; import dl4all as dl",
    ],
)
def test_either_is_imported_first(imports: str) -> None:
    code = f"""{imports}
import sys
from einops import rearrange
assert tuple(rearrange(dl.rand(2, 3), "a b -> b a").shape) == (3, 2)
assert "torch" not in sys.modules
finders = {{type(finder).__module__ for finder in sys.meta_path}}
assert not [module for module in finders if module.startswith("dl4all.pytorch.names.einops")]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_einops_nothing_is_imported() -> None:
    code = "import sys, dl4all; assert 'einops' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
