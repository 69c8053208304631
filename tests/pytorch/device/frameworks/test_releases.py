"""Frameworks whose private names have gone are imported all the same."""

from __future__ import annotations

from types import ModuleType

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from dl4all.pytorch.device import frameworks


@pytest.mark.parametrize("name", sorted(frameworks.AFTER_IMPORT))
def test_a_module_without_the_names_is_left_as_it_is(name: str, caplog: pytest.LogCaptureFixture) -> None:
    module = ModuleType(name)
    before = dict(vars(module))
    frameworks._changed(frameworks.AFTER_IMPORT[name], module)
    assert vars(module) == before
    assert f"{name.partition('.')[0]} is of a release that is not known" in caplog.text
    assert "name the device in the script" in caplog.text
