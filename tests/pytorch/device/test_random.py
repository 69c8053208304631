"""Random numbers on the PyTorch device: their distributions, and that seeds repeat them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import dl4all.torch  # noqa: E402
from dl4all.pytorch.device import generators  # noqa: E402

# What fills 20,000 elements, and the mean and the deviation that they must have.
FILLS: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "uniform": (lambda x: x.uniform_(-1, 3), 1.0, 4 / 12**0.5),
    "normal": (lambda x: x.normal_(2, 0.5), 2.0, 0.5),
    "strided normal": (lambda x: x.view(100, 200).t().normal_(2, 0.5), 2.0, 0.5),
    "exponential": (lambda x: x.exponential_(2.0), 0.5, 0.5),
    "log normal": (lambda x: x.log_normal_(0.0, 0.25), 1.0317, 0.2620),
    "geometric": (lambda x: x.geometric_(0.5), 2.0, 2**0.5),
    "bernoulli": (lambda x: x.bernoulli_(0.25), 0.25, 0.433),
    "bernoulli by element": (lambda x: torch.bernoulli(x.fill_(0.75)), 0.75, 0.433),
    "integers": (lambda x: x.random_(0, 5), 2.0, 2**0.5),
    "normal around means": (lambda x: torch.normal(x.fill_(1.0), 0.5), 1.0, 0.5),
    "randint": (lambda x: torch.randint(2, 7, x.shape, device=x.device), 4.0, 2**0.5),
}


@pytest.mark.parametrize("case", FILLS)
def test_distributions(case: str, place: str, natively: None) -> None:
    function, mean, deviation = FILLS[case]
    drawn = []
    for _ in range(2):
        torch.manual_seed(11)
        first = function(torch.empty(20_000, device=place)).cpu().double()
        drawn.append((first, function(torch.empty(20_000, device=place)).cpu().double()))
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert torch.equal(drawn[0][1], drawn[1][1])
    numbers = drawn[0][0]
    assert not torch.equal(numbers, drawn[0][1])
    assert abs(numbers.mean().item() - mean) < 5 * deviation / 20_000**0.5
    assert abs(numbers.std().item() / deviation - 1) < 0.05


def test_a_generator_of_the_user(place: str, natively: None) -> None:
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    first, second = (torch.empty(50, device=place).normal_(generator=generator).cpu() for _ in range(2))
    assert not torch.equal(first, second)
    generator.set_state(state)
    assert torch.equal(torch.empty(50, device=place).normal_(generator=generator).cpu(), first)


def test_states(place: str, natively: None) -> None:
    where = torch.device(place).index
    generators.manual_seed(-1, where)
    state = generators.get_state(where)
    first = torch.rand(7, device=place).cpu()
    generators.set_state(state, where)
    assert torch.equal(torch.rand(7, device=place).cpu(), first)
    with pytest.raises(dl4all.errors.ArgumentError, match="16 bytes"):
        generators.set_state(torch.zeros(3, dtype=torch.uint8), where)


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial(replacement: bool, place: str, natively: None) -> None:
    torch.manual_seed(5)
    weights = torch.tensor([[0.0, 1.0, 3.0, 0.0, 4.0]]).repeat(4000, 1).to(place)
    drawn = torch.multinomial(weights, 3, replacement).cpu()
    assert drawn.shape == (4000, 3)
    assert drawn.dtype == torch.int64
    shares = drawn[:, 0].bincount(minlength=5) / 4000
    torch.testing.assert_close(shares, torch.tensor([0, 0.125, 0.375, 0, 0.5]), atol=0.04, rtol=0)
    if not replacement:
        assert torch.equal(drawn.sort(1).values, torch.tensor([[1, 2, 4]]).repeat(4000, 1))


def test_multinomial_refuses_weights(place: str) -> None:
    dl4all.torch.set_fallback("silent")
    for weights in ([-1.0, 2.0], [float("nan"), 1.0], [0.0, 0.0]):
        with pytest.raises(RuntimeError):
            torch.multinomial(torch.tensor(weights, device=place), 1)
    dl4all.torch.set_fallback(None)


def test_dropout(place: str, natively: None) -> None:
    torch.manual_seed(6)
    x = torch.randn(100, 101, device=place, requires_grad=True)
    output = torch.nn.functional.dropout(x, 0.25)
    output.sum().backward()
    kept = x.grad.cpu() != 0
    assert abs(kept.double().mean().item() - 0.75) < 0.02
    torch.testing.assert_close(output.detach().cpu(), torch.where(kept, x.detach().cpu() / 0.75, 0.0))
    assert torch.nn.functional.dropout(x, 0.5, training=False) is x


def test_permutations(place: str, natively: None) -> None:
    torch.manual_seed(8)
    first, second = (torch.randperm(101, device=place).cpu() for _ in range(2))
    assert torch.equal(first.sort().values, torch.arange(101))
    assert not torch.equal(first, second)
