"""Distributions compared with PyTorch's: densities, moments, entropies, divergences, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from tests.support.operands import generator

torch = pytest.importorskip("torch", reason="distributions are compared with PyTorch's")

BATCH = (3, 2)
N = 5


def positive(name: str, shape: tuple[int, ...] = BATCH, low: float = 0.3, high: float = 4.0) -> Any:
    return generator(name, *shape).uniform(low, high, shape).astype(np.float32)


def number(name: str, shape: tuple[int, ...] = BATCH) -> Any:
    return generator(name, *shape).standard_normal(shape).astype(np.float32)


def unit(name: str) -> Any:
    return positive(name, BATCH, 0.05, 0.95)


def tril(name: str) -> Any:
    lower = np.tril(number(name, (*BATCH, N, N)), -1)
    return (lower + np.eye(N) * positive(name + " diagonal", (*BATCH, N, 1), 0.5, 2.0)).astype(np.float32)


def covariance(name: str) -> Any:
    factor = tril(name)
    return factor @ factor.swapaxes(-2, -1)


Make = Callable[..., Any]
"""Of the module ``distributions`` and the parameters as tensors."""

CASES: dict[str, tuple[Make, list[Callable[[str], Any]]]] = {
    "Normal": (lambda d, a, b: d.Normal(a, b), [number, positive]),
    "LogNormal": (lambda d, a, b: d.LogNormal(a, b), [number, positive]),
    "HalfNormal": (lambda d, a: d.HalfNormal(a), [positive]),
    "Uniform": (lambda d, a, b: d.Uniform(a, a + b), [number, positive]),
    "Laplace": (lambda d, a, b: d.Laplace(a, b), [number, positive]),
    "Cauchy": (lambda d, a, b: d.Cauchy(a, b), [number, positive]),
    "HalfCauchy": (lambda d, a: d.HalfCauchy(a), [positive]),
    "Gumbel": (lambda d, a, b: d.Gumbel(a, b), [number, positive]),
    "Exponential": (lambda d, a: d.Exponential(a), [positive]),
    "Gamma": (lambda d, a, b: d.Gamma(a, b), [positive, positive]),
    "Chi2": (lambda d, a: d.Chi2(a), [positive]),
    "Beta": (lambda d, a, b: d.Beta(a, b), [positive, positive]),
    "Dirichlet": (lambda d, a: d.Dirichlet(a), [lambda n: positive(n, (*BATCH, N))]),
    "StudentT": (lambda d, a, b, c: d.StudentT(a + 2, b, c), [positive, number, positive]),
    "Bernoulli": (lambda d, a: d.Bernoulli(a), [unit]),
    "Bernoulli of logits": (lambda d, a: d.Bernoulli(logits=a), [number]),
    "Geometric": (lambda d, a: d.Geometric(a), [unit]),
    "Geometric of logits": (lambda d, a: d.Geometric(logits=a), [number]),
    "Binomial": (lambda d, a: d.Binomial(7, a), [unit]),
    "Binomial of logits": (lambda d, a: d.Binomial(7, logits=a), [number]),
    "NegativeBinomial": (lambda d, a, b: d.NegativeBinomial(a, b), [positive, unit]),
    "Poisson": (lambda d, a: d.Poisson(a), [positive]),
    "Categorical": (lambda d, a: d.Categorical(a), [lambda n: positive(n, (*BATCH, N))]),
    "Categorical of logits": (lambda d, a: d.Categorical(logits=a), [lambda n: number(n, (*BATCH, N))]),
    "OneHotCategorical": (lambda d, a: d.OneHotCategorical(logits=a), [lambda n: number(n, (*BATCH, N))]),
    "Multinomial": (lambda d, a: d.Multinomial(6, a), [lambda n: positive(n, (*BATCH, N))]),
    "Independent": (lambda d, a, b: d.Independent(d.Normal(a, b), 1), [number, positive]),
    "MultivariateNormal": (
        lambda d, a, b: d.MultivariateNormal(a, scale_tril=b), [lambda n: number(n, (*BATCH, N)), tril],
    ),
    "MultivariateNormal of a covariance": (
        lambda d, a, b: d.MultivariateNormal(a, b), [lambda n: number(n, (N,)), covariance],
    ),
    "MultivariateNormal of a precision": (
        lambda d, a, b: d.MultivariateNormal(a, precision_matrix=b), [lambda n: number(n, (N,)), covariance],
    ),
    "Tanh of a normal": (
        lambda d, a, b: d.TransformedDistribution(
            d.Normal(a, b), [d.transforms.AffineTransform(0.1, -0.3), d.transforms.TanhTransform()]
        ),
        [number, positive],
    ),
    "Power of a sigmoid": (
        lambda d, a, b: d.TransformedDistribution(
            d.Laplace(a, b), [d.transforms.SigmoidTransform(), d.transforms.PowerTransform(2.0)]
        ),
        [number, positive],
    ),
}  # fmt: skip


def pair(name: str, device: str, salt: str = "") -> tuple[list[Any], list[Any], Any, Any]:
    """The parameters and the distribution, here and in PyTorch."""
    make, draw = CASES[name]
    arrays = [one(f"{name}{number}{salt}") for number, one in enumerate(draw)]
    mine = [dl.tensor(a, device=device).requires_grad_() for a in arrays]
    theirs = [torch.tensor(a).requires_grad_() for a in arrays]
    return mine, theirs, make(dl.distributions, *mine), make(torch.distributions, *theirs)


def close(found: Any, expected: Any, what: str, tolerance: float = 2e-4) -> None:
    found, expected = found.detach().cpu().numpy(), expected.detach().numpy()
    assert found.shape == expected.shape, what
    scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def compare(mine: list[Any], theirs: list[Any], found: Any, expected: Any, what: str) -> None:
    """Compare values, and their gradients by the parameters."""
    close(found, expected, what)
    if not expected.requires_grad:
        return
    for p, q in zip(mine, theirs, strict=True):
        p.grad, q.grad = None, None
    weights = np.cos(np.arange(expected.numel(), dtype=np.float32)).reshape(expected.shape)
    (found * dl.tensor(weights, device=found.device)).sum().backward(retain_graph=True)
    (expected * torch.tensor(weights)).sum().backward(retain_graph=True)
    for p, q in zip(mine, theirs, strict=True):
        if q.grad is not None:
            close(p.grad, q.grad, f"gradient of {what}", 1e-3)


PROPERTIES = ("mean", "variance", "stddev", "mode")


@pytest.mark.parametrize("name", CASES)
def test_equal_pytorch(name: str) -> None:
    compare_with_pytorch(name, "cpu")


@pytest.mark.parametrize("name", ["Gamma", "Bernoulli of logits"])
def test_equal_pytorch_on_devices(name: str, device: str) -> None:
    compare_with_pytorch(name, device)


def compare_with_pytorch(name: str, device: str) -> None:
    mine, theirs, one, other = pair(name, device)
    assert (tuple(one.batch_shape), tuple(one.event_shape)) == (
        tuple(other.batch_shape),
        tuple(other.event_shape),
    )
    assert one.has_rsample == other.has_rsample
    torch.manual_seed(3)
    value = other.sample((4,))
    compare(
        mine, theirs, one.log_prob(dl.tensor(value.numpy(), device=device)), other.log_prob(value), "log_prob"
    )
    for what in (*PROPERTIES, "entropy", "cdf", "icdf"):
        try:
            if what in PROPERTIES:
                expected = getattr(other, what)
            else:
                units = torch.tensor(generator("units").uniform(0.05, 0.95, (4, *BATCH)).astype(np.float32))
                given = {"entropy": (), "cdf": (value,), "icdf": (units,)}[what]
                expected = getattr(other, what)(*given)
        except NotImplementedError:
            continue
        if what == "cdf" and name in ("Gamma", "Chi2"):
            continue  # there is no incomplete gamma function
        if what in PROPERTIES:
            found = getattr(one, what)
        else:
            found = getattr(one, what)(*(dl.tensor(g.numpy(), device=device) for g in given))
        compare(mine, theirs, found, expected, what)


DIVERGING = [
    "Normal", "LogNormal", "HalfNormal", "Laplace", "Cauchy", "Gumbel", "Exponential", "Gamma", "Chi2",
    "Beta", "Dirichlet", "Bernoulli", "Geometric", "Binomial", "Poisson", "Categorical", "OneHotCategorical",
    "Independent", "MultivariateNormal", "Uniform",
]  # fmt: skip


@pytest.mark.parametrize("name", DIVERGING)
def test_divergences_equal_pytorch(name: str) -> None:
    mine, theirs, one, other = pair(name, "cpu")
    more_mine, more_theirs, q, other_q = pair(name, "cpu", "q")
    found = dl.distributions.kl_divergence(one, q)
    expected = torch.distributions.kl_divergence(other, other_q)
    compare([*mine, *more_mine], [*theirs, *more_theirs], found, expected, name)


SAMPLES = 4_000
WITHOUT_MOMENTS = ("Cauchy", "LogNormal", "HalfCauchy", "Power of a sigmoid", "Tanh of a normal")


@pytest.mark.parametrize("name", [name for name in CASES if " of logits" not in name])
def test_samples(name: str) -> None:
    compare_samples(name, "cpu")


@pytest.mark.parametrize("name", ["Gamma", "Poisson", "Categorical"])
def test_samples_on_devices(name: str, device: str) -> None:
    compare_samples(name, device)


def compare_samples(name: str, device: str) -> None:
    """Means and variances, as far as chance explains, and ranks where there are no moments."""
    _, _, one, other = pair(name, device)
    dl.manual_seed(21)
    samples = one.sample((SAMPLES,))
    assert samples.shape == (SAMPLES, *other.batch_shape, *other.event_shape)
    assert not samples.requires_grad
    drawn = samples.cpu().numpy().astype(np.float64)
    if name in WITHOUT_MOMENTS:
        found = one.cdf(samples).detach().cpu().numpy().astype(np.float64)
        mean, variance, drawn = np.full(found.shape[1:], 0.5), np.full(found.shape[1:], 1 / 12), found
    elif name.startswith("Categorical"):
        drawn = np.eye(N)[drawn.astype(int)]
        mean = other.probs.detach().numpy()
        variance = mean * (1 - mean)
    else:
        mean, variance = other.mean.detach().numpy(), other.variance.detach().numpy()
    spread = np.sqrt(variance / SAMPLES)
    tails = 12 if name == "StudentT" else 5
    assert (np.abs(drawn.mean(0) - mean) <= tails * spread + 1e-6).all()
    relative = 0.5 if name in ("StudentT", "NegativeBinomial", "Exponential", "Gamma") else 0.2
    np.testing.assert_allclose(drawn.var(0), variance, rtol=relative, atol=1e-6)


@pytest.mark.parametrize("name", ["Gamma", "Beta", "Dirichlet", "Normal", "Gumbel"])
def test_gradients_through_samples(name: str) -> None:
    """The mean gradient of a function of samples is that of the function's mean."""
    mine, theirs, one, other = pair(name, "cpu")
    dl.manual_seed(4)
    samples = one.rsample((SAMPLES,))
    if name == "Gamma":  # the gradients of squares vary too much
        mean, expected = samples.mean(0), other.mean
    else:
        mean, expected = samples.square().mean(0), other.variance + other.mean.square()
    mean.sum().backward()
    expected.sum().backward()
    for p, q in zip(mine, theirs, strict=True):
        scale = float(q.grad.abs().max()) + 1.0
        np.testing.assert_allclose(p.grad.cpu().numpy(), q.grad.numpy(), atol=0.1 * scale)


@pytest.mark.parametrize("concentration", [0.02, 0.3, 1.0, 2.7, 30.0, 1000.0])
def test_gradients_of_gamma_samples(concentration: float) -> None:
    """Sample by sample: the sample of which the probability is the same, for a parameter nearby."""
    dl.manual_seed(5)
    a = dl.full((301,), concentration, device="cpu").requires_grad_()
    samples = dl.distributions.Gamma(a, 1.0).rsample()
    samples.sum().backward()
    values = torch.tensor(samples.detach().cpu().numpy()).double()
    step = 1e-4 * concentration
    near = [torch.full((301,), concentration + sign * step).double() for sign in (-1, 1)]
    lower, upper = (
        (function(near[1], values) - function(near[0], values)) / (2 * step)
        for function in (torch.special.gammainc, torch.special.gammaincc)
    )
    change = torch.where(values < concentration, lower, -upper)
    center = torch.tensor(concentration).double()
    density = torch.distributions.Gamma(center, torch.ones_like(center)).log_prob(values).exp()
    expected = (-change / density).numpy()
    kept = values.numpy() > 1e-30
    np.testing.assert_allclose(a.grad.cpu().numpy()[kept], expected[kept], rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_expand(name: str) -> None:
    _, _, one, other = pair(name, "cpu")
    shape = (4, *one.batch_shape)
    wide, other_wide = one.expand(shape), other.expand(shape)
    assert wide.batch_shape == tuple(other_wide.batch_shape)
    value = other_wide.sample()
    close(wide.log_prob(dl.tensor(value.numpy())), other_wide.log_prob(value), name)
    assert wide.sample((2,)).shape == (2, *other_wide.batch_shape, *other_wide.event_shape)


@pytest.mark.parametrize("name", ["Bernoulli", "Categorical", "OneHotCategorical", "Binomial"])
def test_supports(name: str) -> None:
    _, _, one, other = pair(name, "cpu")
    for expand in (True, False):
        close(one.enumerate_support(expand), other.enumerate_support(expand), name)


def test_policy_gradients(device: str) -> None:
    """As in reinforcement learning: the gradient of the log-probability of a drawn action."""
    logits = number("policy", (7, N))
    scores, other = dl.tensor(logits, device=device).requires_grad_(), torch.tensor(logits).requires_grad_()
    policy = dl.distributions.Categorical(logits=scores)
    action = policy.sample()
    assert (tuple(action.shape), str(action.dtype)) == ((7,), "int64")
    loss = -(policy.log_prob(action) * dl.arange(7, device=device)).sum() - 0.01 * policy.entropy().sum()
    loss.backward()
    reference = torch.distributions.Categorical(logits=other)
    chosen = reference.log_prob(torch.tensor(action.cpu().numpy()))
    (-(chosen * torch.arange(7)).sum() - 0.01 * reference.entropy().sum()).backward()
    close(scores.grad, other.grad, "gradient")


def test_the_seed_decides_samples(device: str) -> None:
    drawn = []
    for _ in range(2):
        dl.manual_seed(7)
        drawn.append(
            [pair(name, device)[2].sample().cpu().numpy() for name in ("Gamma", "Poisson", "Categorical")]
        )
    for one, other in zip(*drawn, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d.Normal(0.0, -1.0), r"\[Normal\] expected scale .* constraint GreaterThan"),
        (lambda d: d.Normal("a", 1.0), "expected a number or a tensor, got str"),
        (lambda d: d.Normal(dl.tensor([float("nan")]), 1.0), r"loc .* Real"),
        (lambda d: d.Uniform(1.0, 1.0), "low >= high"),
        (lambda d: d.Categorical(), "either probs or logits"),
        (lambda d: d.Categorical(dl.ones(2), logits=dl.ones(2)), "either probs or logits"),
        (lambda d: d.Categorical(dl.tensor([0.5, -0.5])), "not negative"),
        (lambda d: d.Categorical(dl.tensor(0.5)), "at least one axis"),
        (lambda d: d.Bernoulli(1.5), r"probs .* Interval"),
        (lambda d: d.Bernoulli(0.5).log_prob(dl.tensor(0.5)), r"value .* Boolean"),
        (lambda d: d.Categorical(dl.ones(3)).log_prob(dl.tensor(3)), r"value .* IntegerInterval"),
        (lambda d: d.Exponential(1.0).log_prob(dl.tensor(-1.0)), r"value .* GreaterThanEq"),
        (lambda d: d.Gamma(0.0, 1.0), "concentration"),
        (lambda d: d.Dirichlet(dl.tensor(1.0)), "at least one axis"),
        (lambda d: d.Independent(d.Normal(0.0, 1.0), 1), "from 0 to 0 axes"),
        (lambda d: d.MultivariateNormal(dl.zeros(2)), "exactly one of"),
        (lambda d: d.MultivariateNormal(dl.zeros(2), -dl.ones(2, 2)), "not positive definite"),
        (lambda d: d.Multinomial(2.5, dl.ones(2)), "int as total_count"),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make(dl.distributions)


def test_what_there_is_not() -> None:
    d = dl.distributions
    with pytest.raises(NotImplementedError, match="no function is registered for Normal and Gamma"):
        d.kl_divergence(d.Normal(0.0, 1.0), d.Gamma(1.0, 1.0))
    with pytest.raises(NotImplementedError, match=r"use sample\(\) and log_prob\(\)"):
        d.Categorical(dl.ones(3)).rsample()
    assert d.Normal(0.0, -1.0, validate_args=False).scale.item() == -1.0


@pytest.mark.parametrize(
    "name",
    [
        "real", "boolean", "positive", "nonnegative", "unit_interval", "simplex", "one_hot", "real_vector",
        "nonnegative_integer", "positive_integer",
    ],
)  # fmt: skip
def test_constraints_answer_for_arrays_as_for_tensors(name: str) -> None:
    constraint = getattr(dl.distributions.constraints, name)
    expected = getattr(torch.distributions.constraints, name)
    assert constraint.takes_arrays
    random = generator(name)
    weights = random.random((3, N)).astype(np.float32)
    one_hot = np.eye(N, dtype=np.float32)[random.integers(0, N, 3)]
    whole = random.integers(0, 4, (3, N))
    values = [weights, weights / weights.sum(-1, keepdims=True), one_hot, number(name), whole, whole + 1,
              weights.astype(np.float32) * np.nan, weights + np.inf, -one_hot]  # fmt: skip
    answers = set()
    for value in values:
        found = dl.tensor(value, device="cpu")
        allowed = bool(expected.check(torch.from_numpy(value)).all())
        assert constraint.allows(found) is allowed, value
        assert bool(constraint.check(found).all()) is allowed, value
        answers.add(allowed)
    assert answers == {True, False}
    with pytest.raises(ArgumentError, match="constraint"):
        dl.distributions.Binomial(dl.tensor([2.0, 3.0]), probs=0.5).log_prob(dl.tensor([2.0, 4.0]))
