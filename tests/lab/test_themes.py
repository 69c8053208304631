"""Scripts that ask for CUDA, or name no device, compute on the device that DL4ALL_DEVICE names."""

from __future__ import annotations

import json

import pytest

from lab.scripts.cases import CASES, THEMES
from lab.scripts.repositories import ROOT, with_dl4all
from tests.conftest import run_python

pytestmark = pytest.mark.vulkan
SCRIPTS = {case.name.removeprefix("theme: "): case.script for case in CASES if case.repository is THEMES}
REFUSED = {"fno": "dtype complex64 is not supported"}
"""Themes that need what is not here yet, and what the error says."""
LEAST_LAUNCHES = 200
END = """
import json as _json
import dl4all as _dl
_cpu = {row.op for row in _dl.fallback.report() if row.reason.startswith("no ")}
print(_json.dumps([_dl.device("cuda").counters.launches, sorted(_cpu)]))
"""
ON_THE_CPU = {"cholesky", "multinomial", "solve"}
"""Ops of these scripts that have no kernel."""


@pytest.mark.parametrize("theme", SCRIPTS)
@pytest.mark.sampled(3)
def test_a_theme_computes_on_the_device(theme: str) -> None:
    source = with_dl4all((ROOT / THEMES.name / SCRIPTS[theme]).read_text("utf-8"))
    ran = run_python(source + END, DL4ALL_DEVICE="vulkan:0")
    if theme in REFUSED:
        assert REFUSED[theme] in ran.stderr
        return
    assert ran.returncode == 0, ran.stderr
    *_, losses, counted = ran.stdout.splitlines()
    first, last = map(float, losses.split())
    assert last < first
    launches, on_the_cpu = json.loads(counted)
    assert launches > LEAST_LAUNCHES
    assert set(on_the_cpu) <= ON_THE_CPU
