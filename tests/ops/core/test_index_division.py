"""Quotients and remainders of indices, which shaders compute in floats: exact all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.core.kernels.launch import pack
from dl4all.runtime import spirv
from dl4all.scheduler.device.programs import Launch
from dl4all.shaders import ROOT
from tests.conftest import need
from tests.support.operands import generator

SOURCE = """#version 450
#extension GL_GOOGLE_include_directive : require
#include "divide.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) readonly buffer B { uint b[]; };
layout(binding = 2) writeonly buffer Y { uvec2 y[]; };
layout(push_constant) uniform Push { uint n; } p;
void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i < p.n) y[i] = divided(a[i], b[i]);
}
"""


@pytest.mark.parametrize("name", [pytest.param("vulkan:0", marks=pytest.mark.vulkan)])
def test_quotients_are_exact(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of multiples and their neighbours, which rounding takes to the wrong side; up to 2^31 and 2^30."""
    need(name)
    rng = generator("division")
    divisors = np.concatenate([np.arange(1, 600), 2 ** rng.uniform(9, 30, 600) - 1]).astype(np.int64)
    multiples = divisors[:, None] * np.floor(rng.uniform(0, 2**31 / divisors, (8, len(divisors)))).T.astype(
        np.int64
    )
    multiples[:, :2] = divisors[:, None] * [1, 3]
    a = np.clip(multiples[:, :, None] + [-1, 0, 1], 0, 2**31 - 1).reshape(-1).astype(np.int32)
    b = np.repeat(divisors, a.size // len(divisors)).astype(np.int32)

    (tmp_path / "divide.comp").write_text(SOURCE)
    (tmp_path / "include").symlink_to(ROOT / "include")
    load, device = spirv.load, dl.device(name)
    monkeypatch.setattr(spirv, "load", lambda shader: load(shader, tmp_path))
    x, y, result = dl.tensor(a, device=name), dl.tensor(b, device=name), dl.empty(2 * a.size, device=name)
    launch = Launch(spirv.Shader("divide.comp"), (-(-a.size // 64), 1, 1), pack(a.size))
    device.launch(launch, x.storage, y.storage, result.storage)

    quotients, remainders = result.numpy().view(np.int32).reshape(-1, 2).T
    np.testing.assert_array_equal(quotients, a // b)
    np.testing.assert_array_equal(remainders, a % b)
