"""Floats of 8 bits: each pattern, PyTorch's rounding, copies of any layout, and ops that refuse them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.errors import Dl4allError, DTypeError
from dl4all.ops.core.dtypes import converted
from dl4all.ops.core.op import Example, Op
from dl4all.scheduler import fallback
from tests.support.operands import CASES, arrays
from tests.support.subcases import each

Array = npt.NDArray[Any]
NAMES = ("float8_e4m3fn", "float8_e5m2")
names = pytest.mark.parametrize("name", NAMES)


def patterns(name: str) -> Array:
    return np.arange(256, dtype=np.uint8).view(name)


def bits(x: Any) -> list[int]:
    """The patterns of elements; all that are nan count as one."""
    array = x.detach().cpu().numpy() if isinstance(x, dl.Tensor) else x
    words = array.view(np.uint8).astype(int)
    found: list[int] = np.where(np.isnan(array.astype(np.float32)), -1, words).ravel().tolist()
    return found


def near(name: str) -> Array:
    """Numbers between neighbours, and beside those, of all sizes that float32 has."""
    finite = np.sort(patterns(name).astype(np.float32))
    finite = finite[np.isfinite(finite)]
    between = (finite[1:] + finite[:-1]) / 2
    rng = np.random.default_rng(8)
    sizes = rng.standard_normal(500) * 2.0 ** rng.integers(-149, 128, 500)
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 463.0, 464.0, 465.0, 480.0, 61439.0, 61440.0, 1e-45, 3e38]
    beside = [between, between * (1 + 1e-6), between * (1 - 1e-6)]
    numbers: Array = np.concatenate([*beside, sizes, ends]).astype(np.float32)
    return numbers


@names
def test_each_pattern_is_widened_and_rounded(name: str, device: str) -> None:
    x = dl.tensor(patterns(name), device=device)
    assert x.dtype == name
    assert x.is_floating_point()
    assert x.element_size() == 1
    with fallback.policy("error"):
        np.testing.assert_array_equal(x.float().cpu().numpy(), patterns(name).astype(np.float32))
        for between in ("float32", "float16", "bfloat16"):
            if (name, between) != ("float8_e5m2", "bfloat16"):  # which has all of its numbers
                assert bits(x.to(between).to(name)) == bits(patterns(name))


@names
def test_numbers_are_rounded_as_pytorch_does(name: str, device: str) -> None:
    torch = pytest.importorskip("torch")
    numbers = near(name)
    wanted = torch.tensor(numbers).to(getattr(torch, name)).view(torch.uint8).numpy().view(name)
    with fallback.policy("error"):
        assert bits(dl.tensor(numbers, device=device).to(name)) == bits(wanted)
        strided = dl.tensor(np.tile(numbers, (3, 1)), device=device).T
        assert bits(strided.to(name)) == bits(np.tile(wanted, (3, 1)).T.copy())
    assert bits(dl.tensor(numbers, dtype=name, device=device)) == bits(wanted)
    into = dl.zeros(len(numbers), dtype=name, device=device)
    into[:] = numbers
    assert bits(into) == bits(wanted)
    assert bits(into.zero_().copy_(dl.tensor(numbers))) == bits(wanted)


@names
@each("dtype", ("float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"))
def test_other_dtypes_are_converted(dtype: str, name: str, device: str) -> None:
    array = np.array([0, 1, 3, 7, 100, 127]).astype(dtype)
    x = dl.tensor(array, device=device)
    with fallback.policy("silent"):  # of float64, which is rounded once, on the host
        short = x.to(name)
        assert bits(short) == bits(converted(array, name))
        assert short.to(dtype).tolist() == converted(array, name).astype(dtype).tolist()


@names
def test_elements_are_moved_as_they_are(name: str, device: str) -> None:
    array = patterns(name).reshape(16, 16)
    x = dl.tensor(array, device=device)
    with fallback.policy("error"):
        assert bits(x.T.contiguous()) == bits(array.T.copy())
        assert bits(x[1:, ::3].clone()) == bits(array[1:, ::3].copy())
        assert bits(x[1:, ::3].float().to(name)) == bits(array[1:, ::3].copy())
        assert bits(dl.cat([x[3:], x])) == bits(np.concatenate([array[3:], array]))
        assert bits(x[dl.tensor([3, 1], device=device)]) == bits(array[[3, 1]])
        assert bits(x.tril()) == bits(np.where(np.tri(16, dtype=bool), array, np.zeros_like(array)))
        assert bits(dl.full((3,), 2.0, dtype=name, device=device)) == bits(np.full(3, 2.0).astype(name))
    assert x[:1, :3].tolist() == array[:1, :3].astype(np.float32).tolist()


MOVING = {"cast", "clone", "tril", "triu", "take_rows", "put_rows"}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("op", "case"), CASES, ids=str)
def test_every_other_op_refuses_them(op: Op[...], case: Example, device: str) -> None:
    given = arrays(op, case, "float32")
    if op.name in MOVING or not any(a is not None and a.dtype == np.float32 for a in given):
        pytest.skip("an op that moves elements, or has none of floats")
    for name in NAMES:
        tensors = [
            a if a is None else dl.tensor(a.astype(name) if a.dtype == np.float32 else a, device=device)
            for a in given
        ]
        with pytest.raises(Dl4allError, match=rf"{op.name}\].*float8"):
            op(*tensors, **dict(case.arguments))


def test_functions_refuse_them(device: str) -> None:
    x = dl.ones(4, device=device).to(dl.float8_e5m2)
    for refused in (
        lambda: x + 1,
        lambda: 2.0 * x,
        lambda: x.add_(1),
        lambda: x.sort(),
        lambda: x.topk(2),
        lambda: x.unique(),
        lambda: x.acosh(),
        lambda: dl.hypot(x, x),
        lambda: x.logsumexp(0),
        lambda: x.nan_to_num(),
        lambda: dl.promote_types(x.dtype, dl.float32),
        lambda: dl.promote_types(x.dtype, dl.int8),
        lambda: dl.einsum("i,i->", x, x),
    ):
        with pytest.raises(DTypeError, match=r"x\.float\(\)"):
            refused()


def test_limits_are_pytorch_s() -> None:
    torch = pytest.importorskip("torch")
    for name in NAMES:
        mine, theirs = dl.finfo(name), torch.finfo(getattr(torch, name))
        for limit in ("max", "min", "eps", "tiny"):
            assert float(getattr(mine, limit)) == getattr(theirs, limit)


def test_gradients_pass_a_rounding(device: str) -> None:
    x = dl.tensor([0.3, -7.7], device=device, requires_grad=True)
    (x.to(dl.float8_e4m3fn).float() * dl.tensor([2.0, 3.0], device=device)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 3.0]


@names
def test_networks_are_stored_and_compiled(name: str, device: str) -> None:
    net = dl.nn.Linear(5, 3, device=device)
    wanted = {key: bits(value.to(name)) for key, value in net.state_dict().items()}
    small = dl.nn.Linear(5, 3, device=device).to(name)
    small.load_state_dict(net.state_dict())
    assert {key: bits(value) for key, value in small.state_dict().items()} == wanted
    assert small.weight.requires_grad
    x = dl.randn(2, 5, device=device)
    compiled = dl.compile(lambda x, w: x @ w.float().T)
    for _ in range(4):
        result = compiled(x, small.weight)
    np.testing.assert_allclose(
        result.detach().cpu().numpy(), (x @ small.weight.float().T).detach().cpu().numpy(), rtol=1e-6
    )


@names
def test_dlpack_shares_memory_with_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = dl.tensor(patterns(name), device="cpu")
    theirs = torch.from_dlpack(x)
    assert theirs.dtype == getattr(torch, name)
    assert bits(dl.from_dlpack(theirs)) == bits(patterns(name))
    theirs.view(torch.uint8)[0] = 3
    assert bits(x)[:2] == [3, 1]
