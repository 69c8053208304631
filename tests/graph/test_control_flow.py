"""Conditions and loops beside PyTorch's, plain and compiled, with their gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError
from dl4all.graph.run import compiled as compiled_module
from dl4all.graph.run import control_flow
from dl4all.graph.run.compiled import Compiled, CompileWarning
from dl4all.graph.run.executable import Executable

torch = pytest.importorskip("torch", exc_type=ImportError)
operators = pytest.importorskip("torch._higher_order_ops")
scan = pytest.importorskip("torch._higher_order_ops.scan").scan

pytestmark = pytest.mark.filterwarnings(f"error::{CompileWarning.__module__}.CompileWarning")
CALLS = 7  # of which the first are traced, with other values each


def specializations(function: Compiled[..., Any]) -> int:
    return sum(map(len, function.specializations.values()))


def check(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    device: str,
    draw: Callable[[int], list[Any]],
    parameters: tuple[list[Any], list[Any]] = ([], []),
) -> Compiled[..., Any]:
    """Compare values and gradients with PyTorch's, plain and in each of several compiled calls.

    Args:
        function, reference: of tensors, return a tensor.
        device: of the function.
        draw: gives the arrays of a call by its number.
        parameters: of both, which get gradients, too.
    """
    compiled = dl.compile(function)
    for number in range(CALLS):
        arrays = draw(number)
        theirs = [torch.tensor(array, requires_grad=array.dtype == np.float32) for array in arrays]
        expected = reference(*theirs)
        expected.sum().backward()
        for run in (function, compiled):
            ours = [
                dl.tensor(array, device=device).requires_grad_(array.dtype == np.float32) for array in arrays
            ]
            result = run(*ours)
            result.sum().backward()
            np.testing.assert_allclose(
                result.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-5
            )
            for one, other in zip([*ours, *parameters[0]], [*theirs, *parameters[1]], strict=True):
                got = np.zeros(one.shape) if one.grad is None else one.grad.numpy()
                wanted = np.zeros(one.shape) if other.grad is None else other.grad.numpy()
                np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
            for parameter in parameters[0]:
                parameter.grad = None
        for parameter in parameters[1]:
            parameter.grad = None
    assert specializations(compiled) == 1
    return compiled


def normal(*shapes: tuple[int, ...], seed: int = 0) -> Callable[[int], list[Any]]:
    """Arrays for each call, whose mean is above and below 0 in turn."""

    def draw(number: int) -> list[Any]:
        random = np.random.default_rng((seed, number))
        offset = np.float32(0.7 if number % 3 else -0.7)
        return [random.standard_normal(shape, np.float32) + offset for shape in shapes]

    return draw


@pytest.mark.parametrize("shape", [(3, 5), (1,), (), (7, 1, 2)])
def test_cond_takes_one_of_two(device: str, shape: tuple[int, ...]) -> None:
    def first(x: Any, y: Any) -> Any:
        return x.exp() * y

    def second(x: Any, y: Any) -> Any:
        return x.sin() + y * y

    check(
        lambda x, y: dl.cond(x.sum() > 0, first, second, (x, y)),
        lambda x, y: (first if x.sum() > 0 else second)(x, y),
        device,
        normal(shape, shape),
    )


def test_branches_see_parameters_and_what_the_call_has_made(device: str) -> None:
    torch.manual_seed(0)
    theirs = [torch.nn.Linear(4, 4) for _ in range(2)]
    ours = [dl.nn.Linear(4, 4).to(device) for _ in range(2)]
    for one, other in zip(ours, theirs, strict=True):
        one.load_state_dict({name: dl.tensor(t.numpy()) for name, t in other.state_dict().items()})

    def by(module: Any, layers: list[Any], x: Any) -> Any:
        h = x * 3 + 1  # made in the call, and seen by the functions
        return module.cond(h.sum() > 0, lambda a: layers[0](a) * h, lambda a: layers[1](a) - h, (x,)) * h

    check(
        lambda x: by(dl, ours, x),
        lambda x: (lambda h: (theirs[0](x) * h if h.sum() > 0 else theirs[1](x) - h) * h)(x * 3 + 1),
        device,
        normal((3, 4)),
        (
            [p for layer in ours for p in layer.parameters()],
            [p for layer in theirs for p in layer.parameters()],
        ),
    )


def test_a_loop_iterates_as_often_as_its_values_ask_for(device: str) -> None:
    counts = []

    def function(a: Any) -> Any:
        def step(x: Any, a: Any, count: Any) -> Any:
            return (x + a / x) / 2, a, count + 1

        start = dl.zeros((), dtype=dl.int32, device=device)
        x, _, count = dl.while_loop(
            lambda x, a, count: ((x * x - a).abs() > 1e-3 * a).any(), step, (a, a, start)
        )
        return x * (1 + count)

    def reference(a: Any) -> Any:
        x, count = a, 0
        while ((x * x - a).abs() > 1e-3 * a).any():
            x, count = (x + a / x) / 2, count + 1
        counts.append(count)
        return x * (1 + count)

    def draw(number: int) -> list[Any]:
        return [np.random.default_rng(number).random((2, 3), np.float32) * np.float32(10**number) + 0.5]

    check(function, reference, device, draw)
    assert len(set(counts)) > 3


def test_a_loop_of_no_iterations_returns_what_it_was_given(device: str) -> None:
    def function(x: Any) -> Any:
        return dl.while_loop(lambda x: x.sum() > 1e9, lambda x: (x * 2,), (x,))[0] * 3

    check(function, lambda x: x * 3, device, normal((4,)))


@pytest.mark.parametrize("most", [0, 64], ids=["iterated", "unrolled"])
@pytest.mark.parametrize(
    ("shape", "dim", "reverse"),
    [((5, 3), 0, False), ((3, 5), 1, True), ((2, 1, 3), -2, True), ((2, 3, 4), -1, False)],
)
def test_scan_folds_slices(
    device: str, shape: tuple[int, ...], dim: int, reverse: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_flow, "MOST_UNROLLED", most)
    rest = tuple(np.delete(shape, dim).tolist())

    def function(c: Any, x: Any) -> Any:
        carry, ys = dl.scan(lambda c, x: (c * x.cos() + x, c.sin() * x), c, x, dim=dim, reverse=reverse)
        return ys + carry.unsqueeze(dim)

    def reference(c: Any, x: Any) -> Any:
        ys = []
        for part in reversed(x.unbind(dim)) if reverse else x.unbind(dim):
            ys.append(c.sin() * part)
            c = c * part.cos() + part
        return torch.stack(ys[::-1] if reverse else ys, dim) + c.unsqueeze(dim)

    check(function, reference, device, normal(rest, shape))


@pytest.mark.filterwarnings("ignore")
def test_they_are_pytorchs_operators(device: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5), np.float32)
    ours, theirs = dl.tensor(x, device=device), torch.tensor(x)
    for dim, reverse in ((0, True), (1, False), (-1, True)):
        combine = lambda c, x: (c * x, (c + x) * 2)  # noqa: E731
        start = np.ones(5 if dim == 0 else 3, np.float32)
        got = dl.scan(combine, dl.tensor(start, device=device), ours, dim=dim, reverse=reverse)
        wanted = scan(combine, torch.tensor(start), theirs, dim=dim, reverse=reverse)
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5)
    double = lambda x, n: (x * 2, n + 1)  # noqa: E731
    (got_x, got_n) = dl.while_loop(lambda x, n: n < 4, double, (ours, dl.tensor(0, device=device)))
    wanted_x, wanted_n = operators.while_loop(lambda x, n: n < 4, double, (theirs, torch.tensor(0)))
    np.testing.assert_allclose(got_x.numpy(), wanted_x.numpy())
    assert got_n.item() == wanted_n.item() == 4
    for sign in (1, -1):
        branches = (lambda x: x * 2), (lambda x: x - 1)
        got_x = dl.cond((ours * sign).sum() > 0, *branches, (ours,))
        np.testing.assert_allclose(got_x.numpy(), torch.cond((theirs * sign).sum() > 0, *branches, (theirs,)))


@pytest.mark.parametrize("most", [0, 64], ids=["iterated", "unrolled"])
def test_scan_over_a_cell_trains(device: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recurrent network by `scan`, as a compiled step of training, beside the plain one."""
    monkeypatch.setattr(control_flow, "MOST_UNROLLED", most)
    results = []
    for compiles in (False, True):
        dl.manual_seed(3)
        cell = dl.nn.GRUCell(3, 4).to(device)
        optimizer = dl.optim.Adam(cell.parameters(), lr=0.05)

        def step(xs: Any, cell: Any = cell, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            start = dl.zeros(2, 4, device=device)
            last, ys = dl.scan(lambda h, x: ((n := cell(x, h)), n), start, {"a": xs, "b": xs}["a"])
            loss = (ys**2).mean() + last.abs().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = dl.compile(step) if compiles else step
        losses = [run(dl.randn(6, 2, 3, generator=dl.Generator(i)).to(device)).item() for i in range(8)]
        results.append([losses, *(p.detach().numpy() for p in cell.parameters())])
        if isinstance(run, Compiled):
            assert specializations(run) == 1
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_structures_go_in_and_come_out(device: str) -> None:
    def function(x: Any) -> Any:
        state = {"x": x, "pair": (x + 1, [x * 2])}
        out = dl.cond(x.sum() > 0, lambda s: [s["x"], s["pair"]], lambda s: [-s["x"], s["pair"]], (state,))
        (state,) = dl.while_loop(
            lambda s: s["x"].sum() < 50, lambda s: {"x": s["x"].abs() * 2 + 1, "pair": s["pair"]}, (state,)
        )
        return out[0] + out[1][1][0] + state["x"]

    compiled = dl.compile(function)
    for number in range(CALLS):
        x = dl.tensor(normal((3,))(number)[0], device=device)
        np.testing.assert_allclose(compiled(x).numpy(), function(x).numpy(), rtol=1e-6)
    assert specializations(compiled) == 1


def test_a_node_lies_between_graphs_that_are_replayed(device: str) -> None:
    """All but the node is one recording before and one behind."""

    def function(x: Any) -> Any:
        h = (x * 2 + 1).relu()
        h = dl.cond(h.sum() > 3, lambda h: h.exp().sum(0), lambda h: (h - 1).sum(0), (h,))
        return (h * h + 1).sqrt()

    compiled = dl.compile(function)
    for number in range(CALLS):
        x = dl.tensor(normal((2, 5))(number)[0], device=device)
        np.testing.assert_allclose(compiled(x).numpy(), function(x).numpy(), rtol=1e-5)
    [[found]] = compiled.specializations.values()
    names = [node.name for node in found.graph.nodes]
    place = names.index("cond")
    assert 0 < place < len(names) - 1
    assert names.count("cond") == 1
    if isinstance(found.executable, Executable) and dl.device(device).replays:
        assert len(found.executable.recordings) == 2


def test_a_training_step_that_leaves_out_bad_gradients(device: str) -> None:
    """Parameters that a branch reads are those of this call, though an optimizer has changed them since."""
    results = []
    for compiles in (False, True):
        dl.manual_seed(0)
        net = dl.nn.Linear(3, 1).to(device)
        optimizer = dl.optim.SGD(net.parameters(), lr=0.1)

        def step(x: Any, net: Any = net, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = dl.cond(x.sum() > 0, lambda x: net(x).square().mean(), lambda x: net(x).abs().mean(), (x,))
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = dl.compile(step) if compiles else step
        results.append([run(dl.tensor(normal((5, 3))(i)[0], device=device)).item() for i in range(8)])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


def test_second_derivatives_are_taken_uncompiled(device: str) -> None:
    def function(x: Any) -> Any:
        y = dl.cond(x.sum() > 0, lambda x: x**3, lambda x: x.exp(), (x,)).sum()
        (first,) = dl.autograd.grad(y, x, create_graph=True)
        return dl.autograd.grad((first**2).sum(), x)[0]

    compiled = dl.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompileWarning)
        for number in range(3):
            x = dl.tensor(normal((4,))(number)[0], device=device).requires_grad_()
            np.testing.assert_allclose(compiled(x).numpy(), function(x).numpy(), rtol=1e-5)


def test_functions_compute_as_the_autocast_around_them_says(device: str) -> None:
    layers = [dl.nn.Linear(8, 8).to(device) for _ in range(2)]

    def function(x: Any) -> Any:
        with dl.autocast(dl.device(device).type, dtype=dl.bfloat16):
            y = dl.cond(x.sum() > 0, layers[0], layers[1], (x,))
        return y.float().square().mean()

    compiled = dl.compile(function)
    for number in range(CALLS):
        x = dl.tensor(normal((4, 8))(number)[0], device=device)
        got, expected = (
            [run(x), *dl.autograd.grad(run(x), layers[0].weight, allow_unused=True)]
            for run in (compiled, function)
        )
        np.testing.assert_allclose(got[0].item(), expected[0].item(), rtol=1e-5)
        if expected[1] is not None:
            np.testing.assert_allclose(got[1].numpy(), expected[1].numpy(), rtol=1e-2, atol=1e-3)
    assert specializations(compiled) == 1


def test_gradients_of_calls_that_overlap(device: str) -> None:
    """Two calls before the gradients of either: the history that is kept is that of the later one."""

    def function(x: Any, y: Any) -> Any:
        return dl.cond(x.sum() > 0, lambda x, y: (x * y).exp(), lambda x, y: x.sin() * y * y, (x, y)) * 2

    compiled = dl.compile(function)
    for number in range(CALLS):
        gradients = []
        for run in (function, compiled):
            inputs = [
                dl.tensor(array, device=device).requires_grad_()
                for shift in range(2)
                for array in normal((3,), (3,))(number + shift)
            ]
            results = [run(*inputs[:2]), run(*inputs[2:])]
            for result in results[:: 1 if number % 2 else -1]:
                result.sum().backward()
            gradients.append([tensor.grad.numpy() for tensor in inputs])
        np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-5)


def test_functions_may_refer_to_themselves(device: str) -> None:
    def power(x: Any, count: int = 3) -> Any:
        return x if not count else x * power(x, count - 1)

    def function(x: Any) -> Any:
        def again(x: Any, depth: int = 2) -> Any:  # made in the call, and a part of its own closure
            return x if not depth else again(x * 2, depth - 1)

        return dl.cond(x.sum() > 0, again, power, (x,)) + 1

    compiled = dl.compile(function)
    for number in range(CALLS):
        x = dl.tensor(normal((3,))(number)[0], device=device)
        np.testing.assert_allclose(compiled(x).numpy(), function(x).numpy(), rtol=1e-6)
    assert specializations(compiled) == 1


def test_a_trace_draws_as_many_random_numbers_as_a_plain_call(device: str) -> None:
    def function(x: Any) -> Any:
        return dl.cond(x.sum() > -1e9, lambda x: x + dl.rand(4, device=device), lambda x: x * 2, (x,))

    compiled, results = dl.compile(function), list[Any]()
    x = dl.ones(4, device=device)
    for run in (compiled, function):
        dl.manual_seed(11)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CompileWarning)
            results.append([run(x).numpy() for _ in range(3)])
    np.testing.assert_array_equal(results[0], results[1])


class _Holder:
    """An object that a function sees a tensor through."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


@pytest.mark.parametrize(
    ("branch", "why"),
    [
        (lambda x: dl.nn.functional.dropout(x, 0.5), "draws random numbers in a cond"),
        (None, "pass it among the operands"),
    ],
)
def test_what_a_replay_would_get_wrong_runs_uncompiled(device: str, branch: Any, why: str) -> None:
    def function(x: Any) -> Any:
        holder = _Holder(x * 2)
        other = branch or (lambda x: x + holder.tensor)
        return dl.cond(x.sum() > -1e9, other, lambda x: x, (x,))

    compiled = dl.compile(function)
    x = dl.tensor(normal((4,))(1)[0], device=device)
    with pytest.warns(CompileWarning, match=why):
        compiled(x)
    for _ in range(3):
        got = compiled(x)
        if branch is None:
            np.testing.assert_allclose(got.numpy(), (x * 3).numpy(), rtol=1e-6)
    assert not specializations(compiled)


def test_bad_input_is_named(device: str) -> None:
    x = dl.ones(2, 3, device=device)
    run = dl.compile(lambda f, *given: f(*given))
    with pytest.raises(
        ArgumentError, match=r"\[cond\] expected a condition of one element, got shape \(2, 3\)"
    ):
        dl.cond(x > 0, lambda: x, lambda: x)
    with pytest.raises(ArgumentError, match=r"\[while_loop\] expected a condition of one element"):
        dl.while_loop(lambda x: x > 0, lambda x: (x,), (x,))
    with pytest.raises(
        ShapeError, match=r"body_fn must return what it takes, float32\[2, 3\], got float32\[3\]"
    ):
        dl.while_loop(lambda x: x.sum() > 0, lambda x: (x[0],), (x,))
    with pytest.raises(
        ShapeError, match=r"both functions must return one structure.*float32\[2, 3\] and int64"
    ):
        run(lambda x: dl.cond(x.sum() > 0, lambda x: x, lambda x: x.to(dtype=dl.int64), (x,)), x)
    with pytest.raises(ArgumentError, match=r"\[cond\] expected tensors, .*got float; make a tensor of it"):
        run(lambda x: dl.cond(x.sum() > 0, lambda x: 1.0, lambda x: 2.0, (x,)), x)
    with pytest.raises(
        ShapeError, match=r"\[scan\] expected one size of at least 1 along dim 0 of all xs, got"
    ):
        dl.scan(lambda c, x: (c, c), x, (x, x[0]))
    with pytest.raises(ShapeError, match=r"\[scan\] expected one size of at least 1.*got \[0\]"):
        dl.scan(lambda c, x: (c, c), x, x[:0])
    with pytest.raises(ShapeError, match=r"\[scan\] dim 2 is no axis"):
        dl.scan(lambda c, x: (c, c), x, x, dim=2)
    with pytest.raises(ArgumentError, match="combine_fn must return a carry and a result, got Tensor"):
        dl.scan(lambda c, x: c, x, x)
    with pytest.raises(
        ShapeError, match=r"combine_fn must return what it takes, float32\[2, 3\], got float32\[3\]"
    ):
        dl.scan(lambda c, x: (x, x), x, x)
    with pytest.raises(ShapeError, match=r"results of shape \(\) cannot be stacked along dim 1"):
        dl.scan(lambda c, x: (c, x.sum()), x, x, dim=1)
    with pytest.raises(ArgumentError, match="expected tensors to cut in xs, got none"):
        dl.scan(lambda c, x: (c, x), x, ())


def test_an_if_on_a_value_has_a_graph_for_each_path(device: str) -> None:
    """In each call the value is looked at, and where it is another one the other graph runs."""
    layer = dl.nn.Linear(4, 4).to(device)

    def function(x: Any) -> Any:
        y = layer(x) * 2
        y = y.exp() if y.sum() > 0 else y - 1
        if not (y.abs() > 3).any():
            y = y * 5
        return y * y

    compiled = dl.compile(function)
    seen = set()
    for number in range(40):
        x = dl.tensor(normal((2, 4))(number)[0], device=device).requires_grad_()
        results = []
        for run in (compiled, function):
            result = run(x)
            results.append([result.detach().numpy()])
            results[-1] += [g.numpy() for g in dl.autograd.grad(result.sum(), [x, layer.weight])]
        for one, other in zip(*results, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        seen.add(specializations(compiled))
    assert max(seen) >= 2
    assert all(
        sum(node.name == "condition" for node in found.graph.nodes) == 2
        for known in compiled.specializations.values()
        for found in known
    )


def test_more_paths_than_graphs_run_uncompiled(device: str) -> None:
    def function(x: Any) -> Any:
        while x.sum() < 100:
            x = x * 1.5
        return x

    compiled = dl.compile(function)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CompileWarning)
        for number in range(60):
            x = dl.ones(3, device=device) * (1 + number % 12) * 2.0 ** -(number // 5)
            np.testing.assert_allclose(compiled(x).numpy(), function(x).numpy(), rtol=1e-5)
    assert specializations(compiled) <= compiled_module.MOST_SPECIALIZATIONS
    assert len(caught) <= 1


@pytest.mark.parametrize("effect", ["an optimizer", "in place", "random numbers"])
def test_an_if_in_a_call_with_effects_runs_uncompiled(device: str, effect: str) -> None:
    """A graph that finds another value has computed for nothing, so that nothing of it may be seen."""
    layer = dl.nn.Linear(3, 1).to(device)
    optimizer = dl.optim.SGD(layer.parameters(), lr=0.1)
    total = dl.zeros(3, device=device)

    def function(x: Any) -> Any:
        if effect == "an optimizer":
            optimizer.zero_grad()
            layer(x).sum().backward()
        elif effect == "in place":
            total.add_(x.sum(0))
        else:
            x = x + dl.rand(3, device=device)
        y = x * 2 if x.sum() > 0 else x * 3
        optimizer.step()
        return y.detach()

    compiled = dl.compile(function)
    x = dl.tensor(normal((2, 3))(1)[0], device=device)
    with pytest.warns(CompileWarning, match="reads elements of a tensor on the host .*test_control_flow"):
        compiled(x)
    for _ in range(3):
        compiled(x)
    assert not specializations(compiled)


class _Clipped(dl.autograd.Function):
    """Its gradient depends on a value."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2 if g.sum() > 0 else g * 3


def test_an_if_in_a_gradient_runs_uncompiled(device: str) -> None:
    """The call of which a graph was chosen is over by then."""
    compiled = dl.compile(lambda x, weight: _Clipped.apply(x) * weight)
    for number in range(5):
        x = dl.ones(3, device=device).requires_grad_()
        weight = dl.ones(3, device=device) * (-1) ** number
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CompileWarning)
            compiled(x, weight).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2.0 if number % 2 == 0 else -3.0] * 3
    assert not specializations(compiled)
