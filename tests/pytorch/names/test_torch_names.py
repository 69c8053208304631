"""What PyTorch has and dl4all does not is a decision: every such name answers why, from one table."""

from __future__ import annotations

import re
import traceback
from typing import Any

import pytest

import dl4all as dl
from dl4all.pytorch.missing.answers import answer
from dl4all.pytorch.missing.table import INSTEAD, MISSING, REASONS, VERSION

torch = pytest.importorskip("torch", reason="names are compared with PyTorch's")

from tools import torch_names as table  # noqa: E402  # which imports PyTorch

same_version = pytest.mark.skipif(
    not torch.__version__.startswith(f"{VERSION}."), reason=f"the names are those of {VERSION}"
)


@same_version
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("space", MISSING)
def test_what_is_missing_is_in_the_table(space: str) -> None:
    """Whoever adds a name runs ``python tools/torch_names.py``, which takes it off."""
    absent, listed = table.absent(space), table.listed(space)
    assert sorted(absent - listed) == [], f"put them into dl4all/pytorch/missing/table.py under {space}"
    assert sorted(listed - absent) == [], "run `python tools/torch_names.py`"


@pytest.mark.parametrize("space", MISSING)
def test_each_name_answers(space: str) -> None:
    """With what to use or why it is not there; other names keep Python's words."""
    ours: Any = dl.zeros(2, device="cpu") if space == "torch.Tensor" else table.spaces()[space][1]
    for name in sorted(table.listed(space)):
        with pytest.raises(AttributeError, match=r": not (in dl4all|planned)") as caught:
            getattr(ours, name)
        text = "".join(traceback.format_exception_only(caught.value))
        assert text.count("Did you mean") == 0
        assert f".{name}: " in text
        assert not hasattr(ours, name)
    with pytest.raises(AttributeError, match="has no attribute 'transmogrify'"):
        _ = ours.transmogrify


def test_reasons_are_used_and_say_what_they_mean() -> None:
    used = {reason for groups in MISSING.values() for reason in groups}
    assert used == set(REASONS)
    assert all(re.match("not (in dl4all|planned)", text) for text in REASONS.values())
    assert set(INSTEAD) <= set(MISSING)
    assert answer("torch", "abs_") == "not in dl4all: use the method, x.abs_()"
    assert answer("torch", "transmogrify") is None


@same_version
def test_a_new_name_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.linalg, "transmogrify", torch.linalg.det, raising=False)
    assert table.absent("torch.linalg") - table.listed("torch.linalg") == {"transmogrify"}


@pytest.mark.parametrize(
    "space", [space for space in MISSING if space != "torch.Tensor" and table.listed(space)]
)
def test_imports_of_missing_names_answer(space: str) -> None:
    """As attributes do, with the error of an import."""
    name = min(name for name in table.listed(space) if name.isidentifier())
    module = space.replace("torch", "dl4all", 1)
    with pytest.raises(ImportError) as caught:
        exec(f"from {module} import {name}", {})
    assert str(caught.value) == f"cannot import name {name!r} from {module!r}: {answer(space, name)}"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("from dl4all import wand", r"'wand' from 'dl4all': not in dl4all: use dl\.stick$"),
        ("from dl4all import zeros, wand as stick", r"'wand' from 'dl4all': not in dl4all: use dl\.stick$"),
        ("import dl4all.wand", r"No module named 'dl4all\.wand': not in dl4all: use dl\.stick$"),
        ("import dl4all.wand.tip", r"No module named 'dl4all\.wand': not in dl4all: use dl\.stick$"),
        ("from dl4all.wand import tip", r"No module named 'dl4all\.wand': not in dl4all: use dl\.stick$"),
        ("from dl4all.nn import Wand", r"cannot import name 'Wand' from 'dl4all\.nn' \("),
        ("import dl4all.stick", r"No module named 'dl4all\.stick'$"),
        ("from dl4all._wand import tip", r"No module named 'dl4all\._wand'$"),
    ],
)
def test_imports_answer(statement: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a name or a module; others have Python's words. Names beyond the 256th need a longer instruction."""
    monkeypatch.setitem(INSTEAD["torch"], "wand", "dl.stick")
    many = [f"name_{i} = {i}" for i in range(300)]
    for lines in ([statement], [*many, statement]):
        with pytest.raises(ImportError, match=message):
            exec("\n".join(lines), {})
    assert not hasattr(dl, "wand")
