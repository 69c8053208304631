"""Random numbers: published test vectors, the same bits on every device, and their distributions."""

from __future__ import annotations

import copy
import hashlib
import math
import pickle
import shutil
import threading
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, GradientError, ShapeError, UnknownDeviceError
from dl4all.ops.core.expressions import philox
from dl4all.ops.random import distributions
from dl4all.ops.random.generator import noting, repeating, replayed
from dl4all.runtime import registry, spirv
from dl4all.shaders import ROOT

LONG = 1_000_003
HALF: Any = 0.5  # not an int
FAR = (2**40 + 123, 2**32 - 100)  # a key of both words, and a counter that carries into its second one


def bits(tensor: dl.Tensor) -> Any:
    return tensor.numpy().view(np.uint32)


def at(state: tuple[int, int]) -> dl.Generator:
    generator = dl.Generator()
    generator.set_state(state)
    return generator


# Philox


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_published_words(counter: list[int], key: list[int], words: list[int]) -> None:
    """The test vectors of Random123, the authors' implementation."""
    low, high = counter[0] | counter[1] << 32, counter[2] | counter[3] << 32
    for above in (high, np.array([high], np.uint64)):  # one in Python's integers, one in NumPy's
        result = philox.philox(np.array([low], np.uint64), key[0] | key[1] << 32, above)
        assert result.tolist() == [words]


def test_words_do_not_depend_on_where_a_draw_starts() -> None:
    whole = philox.random_words(5, 100, 200_001)
    np.testing.assert_array_equal(whole[4000:4013], philox.random_words(5, 1100, 13))
    wrapped = philox.random_words(5, 2**64 - 1, 8)
    np.testing.assert_array_equal(wrapped[4:], philox.random_words(5, 0, 4))


def test_the_normal_table_is_the_same_on_every_machine() -> None:
    """No quantile is so close to a rounding boundary that the error of a C library would matter."""
    tails = [
        2.0**row * (1 + (segment + point / 32) / 16) + 0.5
        for row in range(31)
        for segment in range(16)
        for point in philox.POINTS
    ]
    scaled = np.array([philox.quantile(tail) for tail in tails]) * philox.NODES
    assert np.abs(scaled - np.floor(scaled) - 0.5).min() / philox.NODES > 1e-13
    digest = hashlib.sha256(philox.table().astype("<i4").tobytes()).hexdigest()
    assert digest == "581f56c32ead9f0daccfb42f7bbff8616946a87f99189a89a0109f405d6bc7a4"


def test_normal_numbers_are_quantiles() -> None:
    """Within 4e-8 and the rounding to float32, from the centre to 6.3 standard deviations."""
    rng = np.random.default_rng(0)
    m = np.unique(
        np.concatenate(
            [
                np.arange(3000),
                2**31 - 1 - np.arange(1000),
                (2.0 ** rng.uniform(0, 31, 30_000)).astype(np.int64),
            ]
        )
    )
    exact = np.array([-NormalDist().inv_cdf((int(k) + 0.5) / 2**32) for k in m])
    for sign in (1, -1):
        words = (m | (sign < 0) << 31).astype(np.uint32)
        numbers = sign * philox.normal(words).astype(np.float64)
        assert np.abs(numbers - exact).max() < 4e-8 + 2.0**-23 * 2
        assert (np.abs(numbers - exact) - np.spacing(exact.astype(np.float32)) / 2).max() < 4e-8
    assert exact.max() > 6.3


# The same bits everywhere


FILLS: dict[str, Any] = {
    "uniform": lambda x, g: distributions.uniform_(x, generator=g),
    "uniform, scaled": lambda x, g: distributions.uniform_(x, -1.3, 2.7, generator=g),
    "normal": lambda x, g: distributions.normal_(x, generator=g),
    "normal, scaled": lambda x, g: distributions.normal_(x, 0.3, 1.7, generator=g),
    "bernoulli": lambda x, g: distributions.bernoulli_(x, 0.3, generator=g),
}


@pytest.mark.parametrize("state", [(0, 0), FAR, (2**64 - 1, 2**64 - 50)])
@pytest.mark.parametrize("n", [1, 5, 131, LONG])
@pytest.mark.parametrize("name", FILLS)
def test_fills_have_the_same_bits(name: str, n: int, state: tuple[int, int], device: str) -> None:
    """Every device gives the bits of the CPU."""
    expected = bits(FILLS[name](dl.empty(n, device="cpu"), at(state)))
    np.testing.assert_array_equal(bits(FILLS[name](dl.empty(n, device=device), at(state))), expected)
    if name == "uniform":
        raw = philox.random_words(*state, n) >> np.uint32(8)
        np.testing.assert_array_equal(
            expected, (raw.astype(np.float64) / 2**24).astype(np.float32).view(np.uint32)
        )


def test_uniform_numbers_stay_below_the_end(device: str) -> None:
    """Where the sum of the start and the share rounds up to the end, which is not one of the numbers."""
    high = float(np.float32(1 + 2**-22))
    numbers = distributions.uniform_(dl.empty(1000, device=device), 1.0, high, generator=at(FAR)).numpy()
    assert set(numbers.tolist()) == {1.0, 1 + 2**-23}


def test_fills_with_a_capped_grid(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dl4all.ops.core.kernels.launch.STRIDED_GRID_CAP", 2)
    for fill in FILLS.values():
        expected = bits(fill(dl.empty(5003, device="cpu"), at(FAR)))
        np.testing.assert_array_equal(bits(fill(dl.empty(5003, device=device), at(FAR))), expected)


@pytest.mark.vulkan
def test_every_row_of_the_normal_table(device: str, tmp_path: Path) -> None:
    """The kernel with consecutive words instead of random ones, near every power of two."""
    if device == "cpu":
        pytest.skip("the table is compared with quantiles")
    words = np.concatenate([np.arange(70_000), *(2**k + np.arange(-2500, 2500) for k in range(17, 32))])
    words = np.concatenate([words, 2**32 - words[::-1]]).astype(np.uint32)
    source = (ROOT / "random" / "normal.comp").read_text()
    assert source.count("random_words(p.key, p.start, j)") == 1
    source = source.replace(
        "random_words(p.key, p.start, j)", "uvec4(4 * j, 4 * j + 1, 4 * j + 2, 4 * j + 3) + p.start.x"
    )
    for folder in ("random", "include"):
        (tmp_path / folder).mkdir()
    (tmp_path / "random" / "normal.comp").write_text(source)
    shutil.copy(ROOT / "include" / "philox.glsl", tmp_path / "include")
    patched = dl.Device.of_backend(device, registry.open_device(device))
    module = spirv.load(distributions.NORMAL, tmp_path)
    patched._programs._compiled[distributions.NORMAL, ()] = patched._backend.program(module, ())
    for start in range(0, len(words), 5000):
        piece = words[start : start + 5000]
        runs = np.split(piece, np.flatnonzero(np.diff(piece.astype(np.int64)) != 1) + 1)
        for run in runs:
            x = dl.empty(len(run), device=patched).normal_(generator=at((0, int(run[0]))))
            np.testing.assert_array_equal(x.numpy(), philox.normal(run))


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_fills_of_float64_and_float16(dtype: str, device: str) -> None:
    for fill in FILLS.values():
        x = fill(dl.empty(1031, dtype=dtype, device=device), at(FAR))
        expected = fill(dl.empty(1031, dtype=dtype, device="cpu"), at(FAR))
        np.testing.assert_array_equal(x.numpy(), expected.numpy())
    x = dl.rand(100_000, dtype=dtype, device=device, generator=at((1, 0))).numpy()
    assert x.min() >= 0
    assert x.max() < 1
    if dtype == "float64":
        assert (x * 2**53 == np.floor(x * 2**53)).all()
        assert len(set(x)) == len(x)
        assert (x * 2**40 != np.floor(x * 2**40)).any()


def test_fills_of_views(device: str) -> None:
    """Fills of views leave the other elements unchanged."""
    for part in (np.s_[3:9], np.s_[:, 2], np.s_[1::2, 3:5], np.s_[4]):
        whole = dl.zeros(11, 7, device=device)
        whole[part].uniform_(1, 2, generator=at(FAR))
        expected = np.zeros((11, 7), np.float32)
        shape = expected[part].shape
        expected[part] = dl.empty(*shape, device="cpu").uniform_(1, 2, generator=at(FAR)).numpy()
        np.testing.assert_array_equal(whole.numpy(), expected)


def test_bernoulli_of_tensors(device: str) -> None:
    probabilities = np.linspace(0, 1, 5005, dtype=np.float32).reshape(1001, 5)
    result = dl.bernoulli(dl.tensor(probabilities.T.copy(), device=device).T, generator=at(FAR))
    expected = dl.bernoulli(dl.tensor(probabilities, device="cpu"), generator=at(FAR)).numpy()
    np.testing.assert_array_equal(result.numpy(), expected)
    assert set(expected.reshape(-1)) == {0, 1}
    assert (expected[0, 0], expected[-1, -1]) == (0, 1)
    assert abs(expected.mean() - 0.5) < 5 * 0.5 / math.sqrt(5005)
    whole = dl.empty(7, 3, dtype="int64", device=device).bernoulli_(1.0)
    assert (whole.numpy() == 1).all()


def test_fills_count_as_changes_in_place(device: str) -> None:
    w = dl.tensor([1.0, 2.0], device=device).requires_grad_()
    with pytest.raises(GradientError, match="cannot be changed in place"):
        w.uniform_()
    y = w * w
    with dl.no_grad():
        assert w.normal_() is w
    with pytest.raises(GradientError, match="changed in place"):
        y.backward(dl.tensor([1.0, 1.0], device=device))


# Distributions


def kolmogorov(sample: Any, cdf: Any) -> float:
    """sqrt(n) times the largest distance of the distributions: above 2.0 with a probability of 0.0007."""
    values = cdf(np.sort(np.asarray(sample, np.float64)))
    n = len(values)
    steps = np.arange(n + 1) / n
    return float(max((steps[1:] - values).max(), (values - steps[:-1]).max()) * math.sqrt(n))


def normal_cdf(x: Any) -> Any:
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_uniform_distribution(seed: int) -> None:
    x = dl.rand(LONG, device="cpu", generator=dl.Generator(seed)).numpy().astype(np.float64)
    assert kolmogorov(x, lambda v: v) < 2
    assert abs(x.mean() - 0.5) < 5 / math.sqrt(12 * LONG)
    pairs, _, _ = np.histogram2d(x[:-1:2], x[1::2], 16)
    expected = (LONG // 2) / 256
    # Chi squared with 255 degrees of freedom, five deviations either way.
    assert abs(((pairs - expected) ** 2 / expected).sum() - 255) < 5 * math.sqrt(2 * 255)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_normal_distribution(seed: int) -> None:
    """Kolmogorov and Smirnov's test, four moments, and the tails out to 4.5 deviations."""
    n = 10 * LONG
    x = dl.randn(n, device="cpu", generator=dl.Generator(seed)).numpy().astype(np.float64)
    assert kolmogorov(x[:LONG], normal_cdf) < 2
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**power).mean() - mean) < 5 * math.sqrt(variance / n)
    for bound in (1, 2, 3, 4, 4.5):
        expected = n * 0.5 * math.erfc(bound / math.sqrt(2))
        for side in (x > bound, x < -bound):
            assert abs(side.sum() - expected) < 5 * math.sqrt(expected) + 1
    assert abs(np.corrcoef(x[:-1:2], x[1::2])[0, 1]) < 5 / math.sqrt(n / 2)


def test_seeds_and_draws_are_not_correlated() -> None:
    """Neighbouring seeds and neighbouring draws are not correlated."""
    draws = [dl.rand(1000, device="cpu", generator=dl.Generator(seed)).numpy() for seed in range(8)]
    generator = dl.Generator(100)
    draws += [dl.rand(1000, device="cpu", generator=generator).numpy() for _ in range(8)]
    assert np.abs(np.corrcoef(draws) - np.eye(16)).max() < 5 / math.sqrt(1000)


# Generators


def test_states_can_be_saved_and_restored() -> None:
    generator = dl.Generator(7)
    dl.rand(13, generator=generator, device="cpu")
    state = generator.get_state()
    assert state == (7, 4)
    first = dl.randn(5, generator=generator, device="cpu").tolist()
    saved: list[Any] = [pickle.loads(pickle.dumps(state)), list(state), copy.deepcopy(state)]
    for again in saved:
        generator.set_state(again)
        assert dl.randn(5, generator=generator, device="cpu").tolist() == first
    assert generator.initial_seed() == 7
    assert generator.manual_seed(7) is generator
    assert generator.get_state() == (7, 0)
    assert repr(generator) == "Generator(seed=7, offset=0)"
    assert generator.seed() == generator.initial_seed()
    assert dl.Generator().seed() != dl.Generator().seed()


def test_the_default_generator() -> None:
    dl.manual_seed(11)
    assert (dl.initial_seed(), dl.get_rng_state()) == (11, (11, 0))
    own = dl.Generator(3)
    dl.rand(100, generator=own, device="cpu")
    assert dl.get_rng_state() == (11, 0)
    dl.rand(100, device="cpu")
    state = dl.get_rng_state()
    first = dl.rand(3, device="cpu").tolist()
    dl.set_rng_state(state)
    assert dl.rand(3, device="cpu").tolist() == first
    assert dl.seed() == dl.initial_seed()
    dl.manual_seed(0)


@pytest.mark.parametrize("wrong", [-1, 2**64, 1.5, "a", None])
def test_seeds_that_are_refused(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^\[manual_seed\]"):
        dl.Generator().manual_seed(wrong)


def test_a_device_in_place_of_the_seed() -> None:
    assert dl.Generator("cpu").device is dl.device("cpu")
    with pytest.raises(UnknownDeviceError, match="'a'"):
        dl.Generator("a").device  # noqa: B018


@pytest.mark.parametrize("wrong", [3, (1, -1), (1, 2, 3), (0.5, 1), ("a", "b"), (1, 2**64), None])
def test_states_that_are_refused(wrong: Any) -> None:
    generator = dl.Generator(5)
    with pytest.raises(ArgumentError, match=r"^\[set_state\]"):
        generator.set_state(wrong)
    assert generator.get_state() == (5, 0)


def test_threads_share_a_generator() -> None:
    """Threads draw no counter twice."""
    generator, states = dl.Generator(1), list[tuple[int, int]]()

    def draw() -> None:
        states.extend(generator.draw(8) for _ in range(1000))

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offset for _, offset in states) == list(range(0, 16_000, 2))


def test_a_replay_affects_only_its_thread() -> None:
    dl.manual_seed(1)
    state = dl.get_rng_state()
    first = dl.rand(4, device="cpu").tolist()
    others = list[Any]()
    with replayed(state):
        assert dl.rand(4, device="cpu").tolist() == first
        thread = threading.Thread(target=lambda: others.append(dl.rand(4, device="cpu").tolist()))
        thread.start()
        thread.join()
    assert others[0] != first
    assert dl.get_rng_state() == (1, 2)


def test_draws_are_noted_and_repeated() -> None:
    own, outer, inner = dl.Generator(5), list[Any](), list[Any]()

    def drawn() -> list[Any]:
        return [dl.rand(5, device="cpu").tolist(), dl.rand(3, generator=own, device="cpu").tolist()]

    with noting(outer):
        first = drawn()
        with noting(inner):
            second = drawn()
    assert (len(outer), len(inner)) == (4, 2)
    state = dl.get_rng_state(), own.get_state()
    with repeating(outer), noting(again := list[Any]()):
        assert [drawn(), drawn()] == [first, second]
    assert again == outer
    with repeating(inner):
        assert drawn() == second
    assert (dl.get_rng_state(), own.get_state()) == state
    assert drawn() != first


# Whole numbers and choices


def test_randint(device: str) -> None:
    x = dl.randint(-3, 4, (7, 1000), device=device, generator=at((1, 0)))
    assert (str(x.dtype), x.shape, str(x.device)) == ("int64", (7, 1000), device)
    values, counts = np.unique(x.numpy(), return_counts=True)
    assert values.tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert np.abs(counts - 1000).max() < 5 * math.sqrt(1000)
    np.testing.assert_array_equal(
        x.numpy(), dl.randint(-3, 4, (7, 1000), device="cpu", generator=at((1, 0))).numpy()
    )
    assert dl.randint(5, (3,), dtype="uint8", device=device).dtype == np.uint8
    assert dl.randint(5, (0, 3), device=device).shape == (0, 3)


@pytest.mark.parametrize(
    ("low", "high"), [(0, 2**24), (0, 2**32), (-(2**62), 2**62), (-(2**63), 2**63), (0, 3 * 2**61)]
)
def test_randint_of_wide_ranges(low: int, high: int) -> None:
    x = dl.randint(low, high, (100_000,), device="cpu", generator=at((2, 0))).numpy()
    assert low <= int(x.min())
    assert int(x.max()) < high
    assert kolmogorov((x.astype(np.float64) - low) / (high - low), lambda v: v) < 2


def test_randperm(device: str) -> None:
    x = dl.randperm(1031, device=device, generator=at((1, 0)))
    assert sorted(x.tolist()) == list(range(1031))
    assert x.tolist() == dl.randperm(1031, device="cpu", generator=at((1, 0))).tolist()
    assert dl.randperm(0, device=device).shape == (0,)
    counts = np.zeros((5, 5))
    generator = at((3, 0))
    for _ in range(2000):
        counts[np.arange(5), dl.randperm(5, device="cpu", generator=generator).numpy()] += 1
    assert np.abs(counts - 400).max() < 5 * math.sqrt(400)


def test_multinomial(device: str) -> None:
    weights = dl.tensor([[0.0, 1.0, 3.0, 0.0], [2.0, 0.0, 0.0, 2.0]], device=device)
    x = dl.multinomial(weights, 4000, replacement=True, generator=at((1, 0)))
    assert (str(x.dtype), x.shape, str(x.device)) == ("int64", (2, 4000), device)
    frequencies = np.stack([np.bincount(row, minlength=4) for row in x.numpy()]) / 4000
    assert frequencies[0, [0, 3]].tolist() == frequencies[1, [1, 2]].tolist() == [0, 0]
    np.testing.assert_allclose(
        frequencies, [[0, 0.25, 0.75, 0], [0.5, 0, 0, 0.5]], atol=5 * 0.5 / math.sqrt(4000)
    )
    both = dl.multinomial(weights, 2, generator=at((2, 0))).numpy()
    np.testing.assert_array_equal(np.sort(both), [[1, 2], [0, 3]])
    assert dl.multinomial(weights[0], 1).shape == (1,)


def test_multinomial_without_replacement() -> None:
    """The first of two is drawn by weight, the second by the weights of the others."""
    weights = dl.tensor(np.tile(np.array([1, 2, 5], np.float32), (20_000, 1)), device="cpu")
    x = dl.multinomial(weights, 2, generator=at((4, 0))).numpy()
    frequencies = np.zeros((3, 3))
    np.add.at(frequencies, (x[:, 0], x[:, 1]), 1 / len(x))
    w = np.array([1, 2, 5]) / 8
    expected = w[:, None] * w / (1 - w)[:, None] * (1 - np.eye(3))
    np.testing.assert_allclose(frequencies, expected, atol=5 * 0.5 / math.sqrt(len(x)))


def test_poisson_and_binomial(device: str) -> None:
    rates = dl.tensor(np.repeat(np.array([[0.0], [0.7], [30.0]], np.float32), 20_000, 1), device=device)
    x = dl.poisson(rates, generator=at((1, 0)))
    assert (str(x.dtype), x.shape, str(x.device)) == ("float32", (3, 20_000), device)
    np.testing.assert_allclose(x.numpy().mean(1), [0.0, 0.7, 30.0], atol=5 * math.sqrt(30 / 20_000))
    np.testing.assert_allclose(x.numpy().var(1), [0.0, 0.7, 30.0], rtol=0.06)
    assert x.tolist() == dl.poisson(rates, generator=at((1, 0))).tolist()
    trials = dl.tensor([[4.0], [9.0]], device=device).expand(2, 20_000)
    x = dl.binomial(trials, dl.tensor(0.3, device=device), at((2, 0)))
    assert (str(x.dtype), x.shape, str(x.device)) == ("float32", (2, 20_000), device)
    np.testing.assert_allclose(x.numpy().mean(1), [1.2, 2.7], atol=0.06)
    np.testing.assert_allclose(x.numpy().var(1), [0.84, 1.89], rtol=0.06)
    assert dl.poisson(dl.zeros(0, 3, device=device)).shape == (0, 3)
    with pytest.raises(ArgumentError, match="poisson"):
        dl.poisson(-rates)
    with pytest.raises(ArgumentError, match="binomial"):
        dl.binomial(trials, trials)
    with pytest.raises(DTypeError, match="poisson"):
        dl.poisson(rates.long())


def test_normal_of_tensors(device: str) -> None:
    mean, std = dl.tensor([[0.0], [100.0]], device=device), dl.tensor([1.0, 2.0, 3.0], device=device)
    x = dl.normal(mean, std)
    assert (x.shape, str(x.device)) == ((2, 3), device)
    assert (np.abs(x.numpy() - [[0], [100]]) < 20).all()
    assert dl.normal(2.0, 0.0, (3,), device=device).tolist() == [2, 2, 2]
    assert dl.normal(mean.half(), std).dtype == dl.normal(1.0, mean.half().abs()).dtype == dl.float16
    assert dl.normal(mean, 0.5).shape == (2, 1)
    assert dl.normal(1.0, std).shape == (3,)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.uniform_(2, 1), ArgumentError, "low <= high, got 2 and 1"),
        (lambda x: x.uniform_(0, math.inf), ArgumentError, "finite numbers"),
        (lambda x: x.normal_(0, -1), ArgumentError, "at least 0, got -1"),
        (lambda x: x.normal_(0, math.nan), ArgumentError, "at least 0, got nan"),
        (lambda x: x.bernoulli_(1.5), ArgumentError, "a probability from 0 to 1, got 1.5"),
        (
            lambda x: x.bernoulli_(dl.zeros(2, device="cpu")),
            ArgumentError,
            r"shape \(3,\) on cpu, got \(2,\)",
        ),
        (lambda x: x.bernoulli_(dl.randint(2, (3,), device="cpu")), DTypeError, "floats, got int64"),
        (lambda x: x.bernoulli_(x + 1.5), ArgumentError, "probabilities from 0 to 1, got some outside"),
        (lambda x: x.bernoulli_(x + math.nan), ArgumentError, "probabilities from 0 to 1, got some outside"),
        (lambda x: x[:1].expand(3).uniform_(), ArgumentError, "share their memory"),
        (lambda x: dl.randint(2, (3,), device="cpu").uniform_(), DTypeError, "a tensor of floats, got int64"),
        (lambda x: dl.randint(3, 3, (1,)), ArgumentError, "low < high, got 3 and 3"),
        (lambda x: dl.randint(HALF, 3, (1,)), ArgumentError, "expected ints"),
        (lambda x: dl.randint(300, (1,), dtype="uint8"), ArgumentError, "do not fit into uint8"),
        (lambda x: dl.randint(3, (-1,)), ArgumentError, "sizes must be at least 0"),
        (lambda x: dl.randperm(-1), ArgumentError, "got -1"),
        (lambda x: dl.randperm(300, dtype="int8"), ArgumentError, "fits into int8, got 300"),
        (lambda x: dl.multinomial(x, 1), ArgumentError, "has 0 positive weights, 1 are needed"),
        (lambda x: dl.multinomial(x - 1, 1), ArgumentError, "finite and at least 0"),
        (lambda x: dl.multinomial(x + 1, 4), ArgumentError, "has 3 positive weights, 4 are needed"),
        (lambda x: dl.multinomial(x + 1, 0), ArgumentError, "at least one sample"),
        (lambda x: dl.multinomial(dl.randint(2, (3,), device="cpu"), 1), DTypeError, "got int64"),
        (lambda x: dl.normal(0.0, 1.0), ArgumentError, "pass the size"),
        (lambda x: dl.normal(x, 1.0, (3,)), ArgumentError, "pass the size"),
        (lambda x: dl.normal(x, dl.zeros(2, device="cpu")), ShapeError, "do not broadcast"),
    ],
)
def test_refusals(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(dl.zeros(3, device="cpu"))


# Dropout as an op


@pytest.mark.parametrize("inner", [1, 5])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean(p: float, inner: int, device: str) -> None:
    n = 200_000
    x = dl.ops.random_dropout(dl.ones(n, device=device), p, seed=1, offset=0, inner=inner).numpy()
    expected = dl.ops.random_dropout(dl.ones(n, device="cpu"), p, seed=1, offset=0, inner=inner).numpy()
    np.testing.assert_array_equal(x, expected)
    assert set(x) == {0, np.float32(1 / (1 - p))}
    kept = (x != 0).reshape(-1, inner)
    assert (kept == kept[:, :1]).all()
    assert abs(kept[:, 0].mean() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / len(kept))
