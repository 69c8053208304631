"""Candidates that are wrong or fail, and those that are declared, on devices."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ShaderError
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.kernels.autotune import SPACES
from dl4all.ops.linalg import matvec
from dl4all.ops.linalg.gemm import PROBLEMS as PRODUCTS
from dl4all.ops.linalg.gemm import SPACE as GEMM
from tests.conftest import REPOSITORY, need
from tests.support.autotune_harness import Bench, lucky

# Candidates that are no good


def fail(result: Any) -> None:
    raise ShaderError("it does not compile")


WRONG: dict[str, tuple[Callable[[Any], None], str]] = {
    "a digit": (lambda result: np.multiply(result, 1.0001, out=result), "differs from usual by 1.0e-04"),
    "one element": (lambda result: result.__setitem__(0, 1.1), "differs from usual by 2.5e-02"),
    "no number": (lambda result: result.__setitem__(1, np.nan), "differs from usual by nan"),
    "infinity": (lambda result: result.__setitem__(1, np.inf), "differs from usual by inf"),
    "nothing": (lambda result: result.view(np.uint32).fill(autotune.NAN), "differs from usual by nan"),
    "an error": (fail, "failed: it does not compile"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_candidate_is_never_chosen(bench: Bench, wrong: str) -> None:
    does, words = WRONG[wrong]
    bench.cost["third"] = 0.01
    bench.does["third"] = does
    found = bench.tune()
    assert found.chosen == "usual"
    assert found.refused["third"].startswith(words)
    assert bench.ran.count("third") == 1
    bench.again()
    bench.does.clear()
    assert bench.tune(100).refused == found.refused  # nor for another class, nor in another process
    assert bench.ran.count("third") == 0
    autotune.forget(bench.device, "test")
    assert bench.tune().chosen == "third"


def test_what_turns_out_to_be_wrong_later_is_not_used_where_it_won(bench: Bench) -> None:
    lucky(bench)
    bench.does["third"] = WRONG["a digit"][0]
    bench.tune(100)
    bench.again()
    assert bench.choose() == "usual"


def test_rounding_is_not_wrong(bench: Bench) -> None:
    bench.cost["third"] = 0.5
    bench.does["third"] = lambda result: np.nextafter(result, np.float32(9), out=result)
    assert bench.tune().chosen == "third"


def test_a_rule_that_computes_no_numbers_refuses_nobody(bench: Bench) -> None:
    bench.does["usual"] = lambda result: result.fill(np.nan)
    with pytest.raises(dl.errors.DeviceError, match=r"^\[test\] usual computes no numbers on cpu"):
        bench.tune()
    assert autotune._refused(bench.space, bench.device) == {}


DIES = """
import os
import numpy as np
import dl4all as dl
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.tensor_base import TensorBase, from_host

def prepare(device, q):
    out = from_host(TensorBase, np.ones(3, np.float32), device, copy=True)
    def run(candidate):
        if candidate == "third":
            os.kill(os.getpid(), 9)
        out.on_host()[:] = 1
    return autotune.Work(run, out)

names = {name: name for name in ("usual", "other", "third")}
space = autotune.TuningSpace("test", names, lambda q: (3,), lambda *_: ("usual",), lambda *_: True, prepare)
autotune.tune(space, dl.device("cpu"), 5, 10.0)
"""


def test_a_candidate_that_ends_the_process_is_not_tried_again(bench: Bench) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", DIES], env=environment, check=False)
    assert done.returncode == -9
    bench.cost["third"] = 0.01
    found = bench.tune()
    assert found.refused == {"third": "the process ended while it was tried"}
    assert found.chosen == "usual"
    assert "third" not in bench.ran
    bench.again()
    assert bench.tune(100).refused == found.refused


def test_an_interrupted_search_is_no_evidence(bench: Bench) -> None:
    def interrupt(result: Any) -> None:
        raise KeyboardInterrupt

    bench.does["other"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.tune()
    bench.does.clear()
    bench.cost["other"] = 0.5
    assert bench.tune().chosen == "other"


# What is declared


def test_a_name_is_declared_once() -> None:
    assert {"gemm", "linear"} <= SPACES.keys()
    with pytest.raises(ValueError, match=r"^\[gemm\] is declared twice$"):
        autotune.declare(GEMM)


@pytest.mark.sampled(4)
@pytest.mark.vulkan
@pytest.mark.parametrize(
    ("name", "label"),
    [
        *(("gemm", label) for label, q in PRODUCTS if q.m * q.n * q.k * q.batch < 2**25),
        *(("linear", label) for label, q in matvec.PROBLEMS if q.features * q.inner < 2**20),
    ],
)
def test_all_candidates_agree(name: str, label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real device, with what it can run: a tile that was wrong would be refused."""
    need("vulkan:0")
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(autotune, "sample", lambda work, times, device: 1.0)
    space, place = SPACES[name], dl.device("vulkan:0")
    problem = dict(space.problems)[label]
    found = autotune.search(space, place, problem, 1000.0)
    key = space.key(problem)
    assert found.refused == {}
    assert found.chosen == found.usual
    assert set(found.seconds) == {n for n, c in space.candidates.items() if space.fits(place, c, key)}


@pytest.mark.vulkan
@pytest.mark.parametrize("way", matvec.METHODS)
@pytest.mark.parametrize(("rows", "features", "inner"), [(1, 1, 1), (1, 130, 67), (5, 3, 300), (4, 70, 13)])
@pytest.mark.parametrize("biased", [False, True])
def test_every_way_to_multiply_a_few_rows(
    way: str, rows: int, features: int, inner: int, biased: bool
) -> None:
    need("vulkan:0")
    rng = np.random.default_rng(rows + features + inner)
    x, w = rng.standard_normal((rows, inner), np.float32), rng.standard_normal((features, inner), np.float32)
    bias = rng.standard_normal(features, np.float32)
    place = [dl.from_numpy(values, "vulkan:0") for values in (x, w, bias)]
    out = dl.full((rows, features), float("nan"), device="vulkan:0")
    matvec.matvec_with_method(
        matvec.METHODS[way], out, place[0], place[1], place[2] if biased else None, rows
    )
    expected = x.astype(np.float64) @ w.T + (bias if biased else 0)
    np.testing.assert_allclose(out.numpy(), expected, atol=4e-7 * (inner + 4) * 3)
