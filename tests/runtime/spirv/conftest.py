"""A shaders folder of the test's own, and a cache folder that nothing else uses."""

from __future__ import annotations

from pathlib import Path

import pytest

HEADER = "#version 450\n#extension GL_GOOGLE_include_directive : require\n"
SCALE = (
    HEADER
    + """#include "types.glsl"
layout(local_size_x_id = 0) in;
layout(binding = 0) readonly buffer X { T x[]; };
layout(binding = 1) writeonly buffer Y { T y[]; };
layout(push_constant) uniform Params { uint n; float factor; } p;
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < p.n) { y[i] = T(OP(float(x[i]))); }
}
"""
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A shaders folder that holds scale.comp and include/types.glsl."""
    folder = tmp_path / "shaders"
    (folder / "include").mkdir(parents=True)
    (folder / "include" / "types.glsl").write_text("#define T float\n")
    (folder / "scale.comp").write_text(SCALE)
    return folder


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, empty."""
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "spirv"
