"""Modules can be imported under PyTorch's names and under those of earlier versions."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module

import pytest

import dl4all as dl
from dl4all.pytorch import names
from dl4all.pytorch.module_aliases import ALIASES, FORMER, NAMES, module_name, public_name

NEED_A_PACKAGE = {
    "dl4all.torch": "torch",
    "dl4all.einops": "einops",
    "dl4all.utils.tensorboard": "tensorboard",
}
WITHIN = [
    name.replace("dl4all.pytorch.names", "dl4all", 1)
    for _, name, _ in pkgutil.walk_packages(names.__path__, "dl4all.pytorch.names.")
]


@pytest.mark.parametrize("alias", sorted({*ALIASES, *FORMER, *WITHIN}))
def test_it_is_the_module(alias: str) -> None:
    pytest.importorskip(NEED_A_PACKAGE.get(alias, "dl4all"))
    name = module_name(alias)
    assert name is not None
    module = import_module(name)
    assert import_module(alias) is module
    assert sys.modules[alias] is module
    assert module.__name__ == name
    assert module.__spec__ is not None
    assert module.__spec__.name == name
    assert public_name(name) == (name if alias in FORMER else alias)


def test_every_module_of_pytorchs_names_has_its_alias() -> None:
    assert {module.name for module in pkgutil.iter_modules(names.__path__)} == set(NAMES)


def test_modules_that_people_import_from_are_at_the_top_level() -> None:
    assert import_module("dl4all.utils.data") is dl.utils.data
    assert import_module("dl4all.backends.cudnn") is dl.backends.cudnn
    assert import_module("dl4all.cuda.amp").autocast is dl.cuda.amp.autocast


def test_other_modules_have_the_name_that_they_have() -> None:
    assert module_name("dl4all.nn.modules") is None
    assert public_name("dl4all.nn.modules") == "dl4all.nn.modules"


@pytest.mark.parametrize("name", ["dl4all.graph.compilde", "dl4all.utils.dta"])
def test_names_that_were_never_there(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
        import_module(name)
