"""The product with cooperative matrices: who is offered it, and what it computes where a device has them."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShaderError
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.op import empty
from dl4all.ops.linalg import cooperative_matrix as module
from dl4all.ops.linalg import gemm as plain
from dl4all.ops.linalg.cooperative_matrix import FLOAT32, SPACE, TILES, CooperativeTile, cooperative_gemm
from dl4all.ops.linalg.gemm import GemmProblem
from dl4all.runtime import spirv
from dl4all.runtime.device_info import CooperativeMatrix, DeviceInfo
from dl4all.runtime.null.backend import describe
from dl4all.runtime.spirv import compilers
from dl4all.tensor.tensor import Tensor
from tests.conftest import REQUIRED, need

KEY = (7, 7, 7, 1, False, False, 0)
SIZES = [(1, 1, 1), (3, 5, 2), (67, 53, 29), (64, 64, 64), (71, 129, 147), (200, 97, 33)]
SHAPE = CooperativeMatrix(16, 16, 16, "float16", "float16", "float32", "float32")
SOURCE = Path(spirv.SHADERS / "linalg/cooperative_gemm.comp")


@pytest.fixture(autouse=True)
def highest() -> Any:
    yield
    dl.set_float32_matmul_precision("highest")


@pytest.fixture(params=[n for n in TILES if n.startswith(("32x32", "64x64"))])
def tile(request: pytest.FixtureRequest) -> CooperativeTile:
    """Those that the first Vulkan device can run; none on most of today's software drivers."""
    need("vulkan:0")
    tile = TILES[request.param]
    if not SPACE.fits(dl.device("vulkan:0"), tile, KEY):
        pytest.skip(f"vulkan:0 has no cooperative matrices of {tile.m}x{tile.n}x{tile.k}, or no compiler")
    return tile


def halves(*shape: int, seed: int) -> Any:
    """Numbers that float16 holds, so that only sums are rounded."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16).astype(np.float32)


@pytest.mark.vulkan
@pytest.mark.parametrize("turned", ["", "a", "b"])
def test_batches_with_rows_apart_offsets_and_bias(tile: CooperativeTile, turned: str) -> None:
    for m, n, k in SIZES:
        check(tile, m, n, k, turned)


def check(tile: CooperativeTile, m: int, n: int, k: int, turned: str) -> None:
    count = 2
    lda, ldb, ldc = (m if turned == "a" else k) + 3, (k if turned == "b" else n) + 1, n + 2
    a = halves(5 + count * (k if turned == "a" else m) * lda, seed=1)
    b = halves(7 + count * (n if turned == "b" else k) * ldb, seed=2)
    bias = np.random.default_rng(3).standard_normal(2 + m).astype(np.float32)
    device = dl.device("vulkan:0")
    c = empty(Tensor, (4 + count * m * ldc,), np.dtype("float32"), device)
    device.fill(c.storage, 0)
    problem = GemmProblem(
        m, n, k, lda=lda, ldb=ldb, ldc=ldc, a_offset=5, b_offset=7, c_offset=4, batch=count,
        a_step=(k if turned == "a" else m) * lda, b_step=(n if turned == "b" else k) * ldb, c_step=m * ldc,
        transpose_a=turned == "a", transpose_b=turned == "b", bias_offset=2,
    )  # fmt: skip
    left, right, added = (dl.tensor(x, device=device) for x in (a, b, bias))
    cooperative_gemm(tile, c, left, right, added, problem)
    x, y = a[5:].reshape(count, -1, lda), b[7:].reshape(count, -1, ldb)
    x = x[:, :, :m].transpose(0, 2, 1) if turned == "a" else x[:, :, :k]
    y = y[:, :, :k].transpose(0, 2, 1) if turned == "b" else y[:, :, :n]
    expected = x @ y + bias[2:, None]
    got = c.numpy()
    rows = got[4:].reshape(count, m, ldc)
    assert np.abs(rows[:, :, :n] - expected).max() < 1e-6 * (k + 4)
    assert not got[:4].any()
    assert not rows[:, :, n:].any()  # what lies between the rows is not touched


@pytest.mark.vulkan
def test_operands_are_rounded_to_float16_and_sums_are_not(
    tile: CooperativeTile, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = autotune.choose
    monkeypatch.setattr(
        autotune, "choose", lambda space, *rest: tile if space is SPACE else choose(space, *rest)
    )
    rng = np.random.default_rng(4)
    x, y = (rng.standard_normal((150, 150)).astype(np.float32) for _ in range(2))
    left, right = (dl.tensor(z, device="vulkan:0") for z in (x, y))
    exact = (left @ right).numpy()
    np.testing.assert_allclose(exact, x @ y, atol=2e-4)
    dl.set_float32_matmul_precision("medium")
    rounded = (left @ right).numpy()
    wide = [z.astype(np.float16).astype(np.float64) for z in (x, y)]
    np.testing.assert_allclose(rounded, wide[0] @ wide[1], atol=2e-4)
    assert np.abs(rounded - exact).max() > 1e-3


@pytest.mark.vulkan
def test_the_tuner_compares_and_may_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path / "cache"))
    device = dl.device("vulkan:0")
    problem = GemmProblem(64, 64, 64, lda=64, ldb=64, ldc=64)
    outcome = autotune.search(SPACE, device, problem, 2.0)
    fitting = {name for name, tile in SPACE.candidates.items() if SPACE.fits(device, tile, KEY)}
    assert outcome.usual == FLOAT32
    assert outcome.refused == {}  # all that were tried agree, within what float16 rounds
    assert {FLOAT32, outcome.chosen} <= fitting
    assert set(outcome.seconds) <= fitting


# Who is offered it


class FakeDevice:
    """A device with facts of its own, which runs nothing."""

    def __init__(self, info: DeviceInfo, features: frozenset[str]) -> None:
        self.info, self.features = info, features


def fake(features: frozenset[str] = module.NEEDS, **facts: Any) -> Any:
    info = describe()
    limits = dataclasses.replace(info.limits, workgroup_invocations=1024, workgroup_size=(1024, 1024, 64))
    limits = dataclasses.replace(limits, shared_memory=facts.pop("shared_memory", 65536))
    facts = dict[str, Any]({"subgroup_size": 32, "cooperative_matrices": (SHAPE,)}) | facts
    return FakeDevice(dataclasses.replace(info, limits=limits, **facts), features)


def test_fitting_tiles_are_those_of_the_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "compiles", lambda: True)

    def offered(device: Any, key: Any = KEY) -> set[str]:
        return {name for name, tile in SPACE.candidates.items() if SPACE.fits(device, tile, key)} - {FLOAT32}

    every = {name for name in TILES if name.endswith(" of 16x16x16")}
    assert offered(fake()) == every
    assert len(every) == 4
    small = dataclasses.replace(SHAPE, m=8)
    assert offered(fake(cooperative_matrices=(SHAPE, small))) == every | {
        name for name in TILES if name.endswith(" of 8x16x16")
    }
    assert offered(fake(cooperative_matrices=(dataclasses.replace(SHAPE, a="int8"),))) == set()
    assert offered(fake(cooperative_matrices=(dataclasses.replace(SHAPE, result="float16"),))) == set()
    assert offered(fake(features=module.NEEDS - {"float16"})) == set()
    assert offered(fake(), (*KEY[:-1], 28)) == set()  # panels
    assert offered(fake(subgroup_size=512)) == set()
    assert offered(fake(shared_memory=16384)) == {"32x32 of 16x16x16", "64x64 of 16x16x16"}
    monkeypatch.setattr(module, "compiles", lambda: False)
    assert offered(fake()) == set()


def test_no_rule_picks_it() -> None:
    for key in (KEY, (11, 11, 11, 8, True, False, 0)):
        assert SPACE.rule(fake().info, key) == (FLOAT32,)


def test_only_medium_precision_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def decline(*arguments: Any) -> bool:
        asked.append(arguments[-1].m)
        return False

    monkeypatch.setattr(plain, "reduced_gemm", decline)
    need("vulkan:0")
    x = dl.ones(9, 9, device="vulkan:0")
    for precision in ("highest", "high", "medium", "highest"):
        dl.set_float32_matmul_precision(precision)
        assert dl.get_float32_matmul_precision() == precision
        assert (x @ x).tolist()[0][0] == 9.0
    assert asked == [9]


def test_the_precision_is_that_of_all_threads_and_of_these_words() -> None:
    dl.set_float32_matmul_precision("medium")
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(dl.get_float32_matmul_precision()))
    thread.start()
    thread.join(30)
    assert found == ["medium"]
    with pytest.raises(ArgumentError, match="expected 'highest', 'high' or 'medium', got 'low'"):
        dl.set_float32_matmul_precision("low")  # type: ignore[arg-type]
    assert dl.get_float32_matmul_precision() == "medium"


def test_a_compiler_that_does_not_know_the_extension(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is offered, and a wheel is built without the shader."""

    def refuse(file: Path, *rest: Any) -> bytes:
        if file == SOURCE:
            raise ShaderError("'#extension' : extension not supported: GL_KHR_cooperative_matrix")
        return real.compile(file, *rest)

    real = compilers.pick()
    monkeypatch.setattr(compilers, "pick", lambda: compilers.Compiler("an old one", refuse))
    monkeypatch.setattr(spirv, "_loaded", {})
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path / "cache"))
    assert module.compiles.__wrapped__() is False
    required = [next(iter(plain.GEMM_SHADERS))]
    assert len(spirv.build(required, tmp_path, optional=[module.COOPERATIVE_GEMM])) == 1
    with pytest.raises(ShaderError, match="GL_KHR_cooperative_matrix"):
        spirv.build([module.COOPERATIVE_GEMM], tmp_path)


def test_the_shader_compiles_where_the_compiler_knows_the_extension() -> None:
    if not module.compiles():
        if "vulkan:0" in REQUIRED:  # a set-up that brings such a device brings a compiler for it
            assert module.NEEDS - dl.device("vulkan:0").features
        pytest.skip("this compiler does not know GL_KHR_cooperative_matrix")
    interface = spirv.load(module.COOPERATIVE_GEMM).interface
    assert [binding.readonly for binding in interface.bindings] == [True, True, True, False]
    assert interface.push_bytes <= 128
    assert "CooperativeMatrixKHR" in interface.capabilities
