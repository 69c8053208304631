"""Compiled calls on the CPU compute bit by bit what immediate mode does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.graph.run.compiled import Compiled
from dl4all.nn import functional as F
from dl4all.ops.core.op import Example, Op
from tests.support.operands import LAYOUTS, Layout, operands_of
from tests.support.subcases import each_example

Arrays = list[np.ndarray[Any, Any]]


def compiled(function: Callable[..., Any], *arguments: Any) -> Compiled[..., Any]:
    """The function, compiled for arguments like these."""
    made = dl.compile(function)
    for _ in range(2):
        made(*arguments)
    assert len(made.specializations) == 1
    return made


def same(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy(), strict=True)


@pytest.mark.sampled(4)
@each_example("layout", LAYOUTS.values())
def test_every_op(op: Op[...], case: Example, layout: Layout) -> None:
    with dl.no_grad():
        _check_op(op, case, layout)


def _check_op(op: Op[...], example: Example, layout: Layout) -> None:
    tensors, _ = operands_of(op, example, layout, "cpu")
    given = [t for t in tensors if t is not None]

    def call(*arrays: Any) -> Any:
        left = iter(arrays)
        return op(*(None if t is None else next(left) for t in tensors), **dict(example.arguments))

    function = dl.compile(call)
    for _ in range(2):
        function(*given)
    assert len(function.specializations) == 1 or op.name in UNCOMPILED
    assert same_bits(function(*given), call(*given))


def same_bits(one: dl.Tensor, other: dl.Tensor) -> bool:
    return (
        one.shape == other.shape
        and one.dtype == other.dtype
        and one.numpy().tobytes() == other.numpy().tobytes()
    )


UNCOMPILED: set[str] = set()


def _models() -> dict[
    str, Callable[[], tuple[dl.nn.Module, Callable[[np.random.Generator], list[dl.Tensor]]]]
]:
    def images(*shape: int) -> Callable[[np.random.Generator], list[dl.Tensor]]:
        return lambda rng: [
            dl.tensor(rng.standard_normal(shape).astype(np.float32), device="cpu"),
            dl.tensor(rng.integers(0, 5, shape[0]), device="cpu"),
        ]

    def words(rng: np.random.Generator) -> list[dl.Tensor]:
        return [dl.tensor(rng.integers(0, 29, (3, 8)), device="cpu") for _ in range(2)]

    def gpt() -> dl.nn.Module:
        return dl.models.GPT(29, block_size=8, n_layer=2, n_head=2, n_embd=16, dropout=0.1)

    return {
        "mlp": lambda: (dl.models.MLP(13, [17], 5), images(7, 13)),
        "lenet": lambda: (dl.models.LeNet(), images(2, 1, 28, 28)),
        "resnet": lambda: (dl.models.resnet18(10, base_channels=8), images(2, 3, 32, 32)),
        "gpt": lambda: (gpt(), words),
        "tagger": lambda: (dl.models.LSTMTagger(29, 29, 8, 12), words),
    }


def _loss(scores: Any, target: dl.Tensor) -> dl.Tensor:
    scores = scores[0] if isinstance(scores, tuple) else scores
    return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), target.reshape(-1))


@pytest.mark.parametrize("name", _models())
@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
def test_training_steps(name: str, optimizer: str) -> None:
    runs = []
    for compiles in (False, True):
        dl.manual_seed(5)
        model, draw = _models()[name]()
        model.to("cpu")
        options = {"lr": 1e-2, "momentum": 0.9} if optimizer == "SGD" else {"lr": 1e-2}
        made = getattr(dl.optim, optimizer)(model.parameters(), **options)

        def step(x: dl.Tensor, y: dl.Tensor, model: Any = model, made: Any = made) -> dl.Tensor:
            made.zero_grad()
            loss = _loss(model(x), y)
            loss.backward()
            dl.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            made.step()
            return loss.detach()

        run = dl.compile(step) if compiles else step
        rng = np.random.default_rng(3)
        losses = [run(*draw(rng)).item() for _ in range(6)]
        if isinstance(run, Compiled):
            assert len(run.specializations) == 1
        runs.append((losses, [p.detach().numpy() for p in model.parameters()]))
    assert runs[0][0] == runs[1][0]
    for one, other in zip(runs[0][1], runs[1][1], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", _models())
def test_inference(name: str) -> None:
    model, draw = _models()[name]()
    model.to("cpu").eval()

    def call(x: dl.Tensor) -> Any:
        with dl.no_grad():
            result = model(x)
        return result if isinstance(result, tuple) else (result,)

    rng = np.random.default_rng(3)
    function = compiled(call, draw(rng)[0])
    x, z = draw(rng)[0], draw(rng)[0]
    expected = [t.clone() for t in call(x)]
    found = function(x)
    function(z)  # the results of a call stay as they are
    same(found, expected)


def test_results_inputs_and_parameters_keep_their_memory_apart() -> None:
    weight = dl.tensor([[2.0, 3.0]], device="cpu")

    def call(x: dl.Tensor) -> tuple[dl.Tensor, ...]:
        weight.add_(1.0)
        x.mul_(2.0)
        total = x + weight
        return total, total[0], total.relu_()

    x = dl.tensor([[1.0, -9.0]], device="cpu")
    function = compiled(call, x)
    x = dl.tensor([[1.0, -9.0]], device="cpu")
    weight.fill_(2.0)
    whole, row, activated = function(x)
    assert (x.tolist(), weight.tolist()) == ([[2.0, -18.0]], [[3.0, 3.0]])
    assert whole.tolist() == activated.tolist() == [[5.0, 0.0]]
    assert row.tolist() == [5.0, 0.0]
    whole.fill_(7.0)
    assert row.tolist() == [7.0, 7.0]
    assert function(x)[0].tolist() == [[8.0, 0.0]]


def test_a_wrong_index_is_found_in_each_call() -> None:
    table = dl.randn(5, 3, device="cpu")
    function = compiled(lambda i: F.embedding(i, table), dl.tensor([4, 0], device="cpu"))
    with pytest.raises(ArgumentError, match="index 5 is out of range"):
        function(dl.tensor([5, 0], device="cpu"))
    index = dl.tensor([1, 3], device="cpu")
    np.testing.assert_array_equal(function(index).numpy(), table.numpy()[[1, 3]])


def test_temporaries_share_memory() -> None:
    x = dl.randn(64, 64, device="cpu")

    def call(x: dl.Tensor) -> dl.Tensor:
        for _ in range(6):
            x = dl.exp(x.T) - 1.0
        return x

    function = compiled(call, x)
    [[found]] = function.specializations.values()
    plan = found.executable.plan  # type: ignore[union-attr]
    assert plan.nbytes == plan.lower_bound == 2 * 64 * 64 * 4
    same([function(x)], [call(x)])
