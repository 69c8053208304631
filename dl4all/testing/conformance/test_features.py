"""Optional features: each computes right where the backend names it, and is refused where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dl4all.errors import ShaderError
from dl4all.runtime.protocols import Dispatch, span
from dl4all.runtime.requirements import FEATURES
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.kernels import words

pytestmark = pytest.mark.usefixtures("programs")
N, K = 101, 12345
UNTRIED = {"memory_model", "cooperative_matrix"}  # nothing that dl4all runs needs them yet


def one_to_one(bench: Bench, name: str, data: npt.NDArray[Any], out: type, k: int = K) -> npt.NDArray[Any]:
    """The result of a kernel for `data`, element by element."""
    x, y = bench.put(data), bench.put(np.full(N, -1).astype(out))
    bench.run(name, x, y, n=N, k=k)
    result: npt.NDArray[Any] = np.empty(N, out)
    bench.stream.download(span(y), result.view(np.uint8))
    return result


def int64(bench: Bench) -> None:
    data = words(1, N)
    expected = data.astype(np.uint64) * np.uint64(K) >> np.uint64(32)
    np.testing.assert_array_equal(one_to_one(bench, "int64", data, np.uint32), expected)


def int16(bench: Bench) -> None:
    data = words(2, N)
    expected = data.astype(np.uint16) * np.uint16(K)
    np.testing.assert_array_equal(one_to_one(bench, "int16", data, np.uint32), expected)


def int8(bench: Bench) -> None:
    data = words(3, N)
    expected = data.astype(np.uint8) * np.uint8(K % 256)
    np.testing.assert_array_equal(one_to_one(bench, "int8", data, np.uint32), expected)


def float16(bench: Bench) -> None:
    """Exact up to 2048; above it, a number that 16 bits hold, next to the right one."""
    data = words(4, N) % np.uint32(1000)
    found = one_to_one(bench, "float16", data, np.float32, 17)
    exact = data * np.uint32(17)
    np.testing.assert_array_equal(found[exact <= 2048], exact[exact <= 2048])
    np.testing.assert_array_equal(found, found.astype(np.float16))
    assert (abs(found - exact) <= exact / 1024).all()
    assert (found != exact).any()  # it was 16 bits indeed


def storage16(bench: Bench) -> None:
    data = words(5, N).astype(np.uint16)
    expected = data * np.uint16(3) + np.uint16(K)
    np.testing.assert_array_equal(one_to_one(bench, "storage16", data, np.uint16), expected)


def storage8(bench: Bench) -> None:
    data = words(6, N).astype(np.uint8)
    expected = data * np.uint8(3) + np.uint8(K % 256)
    np.testing.assert_array_equal(one_to_one(bench, "storage8", data, np.uint8), expected)


def subgroup_shuffle(bench: Bench) -> None:
    y = bench.poison(64)
    bench.stream.dispatch(Dispatch(bench.kernels.program("subgroup_shuffle"), [span(y)], (1, 1, 1)))
    size = min(bench.backend.info.subgroup_size, 64)
    bench.expect(y, (np.arange(64) // size * size).astype(np.uint32))


def subgroup_arithmetic(bench: Bench) -> None:
    """Each subgroup, told by its least index, has one sum, and it is right."""
    data = words(7, 128)
    x, y, z = bench.put(data), bench.poison(128), bench.poison(128)
    program = bench.kernels.program("subgroup_arithmetic")
    bench.stream.dispatch(Dispatch(program, [span(x), span(y), span(z)], (2, 1, 1)))
    sums, first = bench.get(y, 128), bench.get(z, 128)
    for least in np.unique(first):
        members = first == least
        assert least == members.argmax()
        assert members.sum() <= bench.backend.info.subgroup_size
        np.testing.assert_array_equal(sums[members], data[members].sum(dtype=np.uint32))
    assert (len(np.unique(first)) < 128) == (bench.backend.info.subgroup_size > 1)


def integer_dot_product(bench: Bench) -> None:
    """Of the signed bytes of words."""
    data = words(8, N)
    factors = np.full(N, K, np.uint32).view(np.int8).reshape(N, 4).astype(np.int32)
    expected = (data.view(np.int8).reshape(N, 4) * factors).sum(1, dtype=np.int32)
    np.testing.assert_array_equal(one_to_one(bench, "integer_dot_product", data, np.int32), expected)


TRIALS: dict[str, Callable[[Bench], None]] = {
    trial.__name__: trial
    for trial in (
        *(int64, int16, int8, float16, storage16, storage8),
        *(subgroup_shuffle, subgroup_arithmetic, integer_dot_product),
    )
}
CAPABILITIES = {feature: capability for capability, feature in FEATURES.items()}


def test_every_feature_is_tried() -> None:
    assert {*TRIALS, *UNTRIED} == set(FEATURES.values())


def test_nothing_unknown_is_named(bench: Bench) -> None:
    """Capabilities are those of SPIR-V: programs could never ask for another."""
    assert bench.backend.features <= set(FEATURES.values())


@pytest.mark.parametrize("feature", TRIALS)
def test_features(bench: Bench, feature: str) -> None:
    if feature not in bench.backend.features:
        needed = rf"needs {CAPABILITIES[feature]}, which is not enabled on the device$"
        with pytest.raises(ShaderError, match=rf"^\[{feature}.comp[^]]*\] {needed}"):
            bench.kernels.program(feature)
        return
    if bench.capabilities.data:
        TRIALS[feature](bench)
    else:
        bench.kernels.program(feature)
