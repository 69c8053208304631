"""Devices that offer no more than Vulkan 1.1 requires of every device: DL4ALL_LIMITS=minimum."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from dl4all.runtime.device_info import Limits, limited
from dl4all.runtime.null.backend import describe
from tests.conftest import need, run_python
from tests.support.subcases import FULL

# Vulkan 1.1's table of required limits.
REQUIRED = Limits(
    storage_buffer_range=2**27,
    allocation_size=2**30,
    push_constants=128,
    storage_buffers=4,
    shared_memory=16384,
    workgroup_count=(65535, 65535, 65535),
    workgroup_invocations=128,
    workgroup_size=(128, 128, 64),
)
REPORT = """
import dataclasses, json
import dl4all as dl
from dl4all.runtime import spirv

place = dl.device({name!r})
refused = []
for code in dl.ops.all_shaders()[::{step}]:
    try:
        place._backend.program(spirv.load(code), ())
    except dl.errors.ShaderError as error:
        refused.append([code.name, str(error)])
print(json.dumps({{
    "info": dataclasses.asdict(place.info), "features": sorted(place.features), "refused": refused,
    "product": (dl.ones(50, 70, device=place) @ dl.ones(70, 30, device=place)).numpy().tolist(),
}}, default=sorted))
"""


def plenty() -> Any:
    limits = Limits(2**32, 2**40, 256, 64, 65536, (2**31 - 1,) * 3, 1024, (1024, 1024, 1024))
    features = frozenset({"subgroup_shuffle", "float16", "int8", "int64"})
    return dataclasses.replace(describe(), features=features, limits=limits)


def test_the_defaults_are_the_required_limits() -> None:
    assert Limits() == REQUIRED


@pytest.mark.parametrize("value", ["", "minimum"])
def test_what_is_left_of_a_device(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_LIMITS", value)
    left = limited(plenty())
    if not value:
        assert left == plenty()
        return
    assert left.limits == REQUIRED
    assert dataclasses.replace(left, limits=plenty().limits) == dataclasses.replace(
        plenty(), features=frozenset()
    )
    assert (left.subgroup_shuffle, left.float16, left.int8) == (False, False, False)


@pytest.mark.vulkan
@pytest.mark.parametrize("name", ["vulkan:0", "kompute:0"])
def test_devices_obey(name: str) -> None:
    """The usual run asks for some shaders, and of Kompute, which refuses by the same rule, for fewer."""
    need(name)
    step = 1 if FULL else 4 if name.startswith("vulkan") else 11
    done = run_python(REPORT.format(name=name, step=step), DL4ALL_LIMITS="minimum")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["info"]["limits"] == json.loads(json.dumps(dataclasses.asdict(REQUIRED)))
    assert report["features"] == []
    assert report["info"]["features"] == []
    # What is refused is there for devices that shuffle, add in subgroups, multiply bytes or have int64, and
    # nothing else.
    assert {message.partition("] needs ")[2].partition(",")[0] for _, message in report["refused"]} <= {
        "Int64",
        "DotProductInput4x8BitPacked",
        "GroupNonUniformShuffle",
        "GroupNonUniformArithmetic",
    }
    named = ("gemm", "SUBGROUPS", "ARITHMETIC=1", "DOT=1")
    assert all(any(name in shader for name in named) for shader, _ in report["refused"])
    assert report["product"] == [[70.0] * 30] * 50


def test_a_mistake_is_said_at_once() -> None:
    done = run_python("import dl4all as dl\ndl.device('cpu')", DL4ALL_LIMITS="small")
    assert done.returncode == 1
    assert done.stderr.endswith("ConfigError: DL4ALL_LIMITS must be minimum or empty, not 'small'\n")
