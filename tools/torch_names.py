"""Keep the table of PyTorch's names that dl4all does not have: ``dl4all/pytorch/missing/table.py``.

python tools/torch_names.py

It takes off the table what dl4all has by now and writes the file anew. Names that neither the table nor
dl4all has are listed at the end: put each into ``MISSING`` under a reason, or into ``INSTEAD``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import dl4all as dl
from dl4all.pytorch.missing import table as torch_names

FILE = Path(__file__).parents[1] / "dl4all" / "pytorch" / "missing" / "table.py"
IMPORTED = {"F", "TYPE_CHECKING", "Tensor", "inf"}
"""What files of PyTorch import for themselves."""


def spaces() -> dict[str, tuple[Any, Any]]:
    """PyTorch's and dl4all's module or class of each part of the table."""
    return {name: (_there("torch", name), _there("dl4all", name)) for name in torch_names.MISSING}


def _there(package: str, space: str) -> Any:
    words = space.split(".")[1:]
    if words == ["Tensor"]:
        return importlib.import_module(package).Tensor
    try:
        return importlib.import_module(".".join((package, *words)))
    except ModuleNotFoundError:  # what dl4all does not have at all is one name of the part above
        return None


def public(space: Any) -> set[str]:
    """The names of a module of PyTorch that are not imported from elsewhere, or all of a class."""
    names = {name for name in dir(space) if not name.startswith("_")}
    if inspect.isclass(space):
        return names - {"dlall", "is_dlall"}  # dl4all.torch adds those to PyTorch
    return {name for name in names if _is_own(space, name)} - {"dlall"}


def _is_own(space: Any, name: str) -> bool:
    thing = getattr(space, name, None)
    if inspect.ismodule(thing):
        return thing.__name__ == f"{space.__name__}.{name}" and thing.__name__ in _loaded()
    if name in IMPORTED and space.__name__ != "torch":
        return False
    owner = getattr(thing, "__module__", None)
    # What dl4all.torch puts in the place of a function of PyTorch's has its name.
    return name != "TYPE_CHECKING" and (
        owner is None or owner.startswith(("torch", "builtins", "dl4all.pytorch.device."))
    )


@functools.cache
def _loaded() -> frozenset[str]:
    """The modules that PyTorch loads by itself, whatever of it has been imported here."""
    parts = ", ".join(space for space in torch_names.MISSING if space != "torch.Tensor")
    code = f"import sys, {parts}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return frozenset(found.stdout.split())


def absent(space: str) -> set[str]:
    """What PyTorch has in a space and dl4all does not."""
    theirs, ours = spaces()[space]
    if theirs is None or ours is None:
        return set()
    found = public(theirs) - {name for name in dir(ours) if hasattr(ours, name)}
    folders = [Path(folder) for folder in vars(ours).get("__path__", ())]
    return {name for name in found if not any((folder / name).is_dir() for folder in folders)}


def listed(space: str) -> set[str]:
    """What the table has of a space."""
    words = (word for words in torch_names.MISSING[space].values() for word in words.split())
    return {*words, *torch_names.INSTEAD.get(space, {})}


def written() -> str:
    """The file without what dl4all has by now."""
    kept = {
        space: listed(space) & absent(space) if spaces()[space][1] else listed(space) for space in spaces()
    }
    lines = [f'"""{torch_names.__doc__}"""', "", "from __future__ import annotations", ""]
    lines += ["# Written by tools/torch_names.py, which takes off it what dl4all has by now."]
    lines += [f'VERSION = "{torch_names.VERSION}"', '"""Whose names were looked through."""', ""]
    lines += ["REASONS: dict[str, str] = {"]
    lines += [f"    {_text(key)}: {_text(text)}," for key, text in torch_names.REASONS.items()]
    lines += ["}", '"""The answer for a group of names."""', "", "MISSING: dict[str, dict[str, str]] = {"]
    for space, groups in torch_names.MISSING.items():
        lines.append(f"    {_text(space)}: {{")
        for key in torch_names.REASONS:
            names = sorted(set(groups.get(key, "").split()) & kept[space])
            if names:
                parts = textwrap.wrap(" ".join(names), 94, break_on_hyphens=False)
                lines.append(f"        {_text(key)}: (")
                lines += [f"            {_text(part + ' ' * (part is not parts[-1]))}" for part in parts]
                lines.append("        ),")
        lines.append("    },")
    lines += ["}", '"""Names by space and reason."""', "", "INSTEAD: dict[str, dict[str, str]] = {"]
    for space, answers in torch_names.INSTEAD.items():
        lines.append(f"    {_text(space)}: {{")
        lines += [
            f"        {_text(name)}: {_text(text)},"
            for name, text in sorted(answers.items())
            if name in kept[space]
        ]
        lines.append("    },")
    lines += ["}", '"""The name or the code to use in place of a name."""', ""]
    return "\n".join(lines)


def _text(text: str) -> str:
    return f"'{text}'" if '"' in text else f'"{text}"'


if __name__ == "__main__":
    FILE.write_text(written(), "utf-8")
    for part in spaces():
        if names := sorted(absent(part) - listed(part)):
            print(f"{part}: {' '.join(names)}")
    print(f"wrote {FILE.name} for dl4all {dl.__version__}; format it with ruff")
