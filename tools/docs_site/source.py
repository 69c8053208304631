"""Write what Sphinx reads: the pages of docs/ and the reference of the public names, into one folder.

python -m tools.docs_site.source FOLDER
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from dl4all.pytorch.missing import table as torch_names
from tools.docs_site import entries
from tools.docs_site.names import Name, Page, pages

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md")
"""Pages of the checkout that stand beside those of docs/ on the site."""

MISSING = "<!-- missing names -->"
"""Where the table of PyTorch's names stands that dl4all does not have."""

SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n?)*)", re.M)
LISTED = re.compile(r"^ *- \[([^\]]+)\]\((\.\./)?([^)#]+)\.md\)", re.M)


def write(path: Path, text: str) -> None:
    """Write where something changes: Sphinx reads anew what is newer than its last run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def navigation(index: str) -> str:
    """The table of contents of the site, from the lists of links of the first page."""
    trees = []
    for section, text in SECTION.findall(index):
        found = LISTED.findall(text)
        if found:
            lines = [f"{name} <{page}>" for name, _, page in found]
            trees.append(f"```{{toctree}}\n:hidden:\n:caption: {section}\n\n" + "\n".join(lines) + "\n```\n")
    trees.insert(1, "```{toctree}\n:hidden:\n:caption: Reference\n\nreference/index\n```\n")
    return index + "\n" + "\n".join(trees)


def site_text(page: Path) -> str:
    """A page of the checkout with links as they are on the site."""
    text = page.read_text("utf-8")
    if page == DOCS / "index.md":
        return navigation(text).replace("](../", "](")
    if page.name == "README.md":  # of a folder
        listed = "\n".join(f"{name} <{link}>" for name, _, link in LISTED.findall(text))
        return f"{text}\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"
    if page.parent == ROOT:
        return text.replace("](docs/", "](")
    if MISSING in text:
        text = text.replace(MISSING, missing_names())
    return text.replace("](../CHANGELOG.md", "](CHANGELOG.md").replace(
        "](../CONTRIBUTING.md", "](CONTRIBUTING.md"
    )


def missing_names() -> str:
    """What names of PyTorch's answer that dl4all does not have: a table for each module or class."""
    parts = []
    for space in sorted({*torch_names.INSTEAD, *torch_names.MISSING}):
        rows = [
            f"| `{name}` | use {text} |" for name, text in sorted(torch_names.INSTEAD.get(space, {}).items())
        ]
        for reason, names in torch_names.MISSING.get(space, {}).items():
            listed = ", ".join(f"`{name}`" for name in names.split())
            rows.append(f"| {listed} | {torch_names.REASONS[reason].format(name='NAME')} |")
        parts.append(f"### Names of {space}\n\n| name | answer |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def reference() -> dict[str, str]:
    """The files of the reference."""
    found = pages()
    elsewhere: dict[int, Name] = {}
    for page in found:
        for name in page.names:
            elsewhere.setdefault(id(name.thing), name)
    # a constant such as None or 1 is not one thing of which another name is an alias
    elsewhere = {key: name for key, name in elsewhere.items() if callable(name.thing)}
    texts = {f"{page.file}.rst": entries.page(page, elsewhere) for page in found}
    by_space: dict[str, list[Page]] = {}
    for page in found:
        by_space.setdefault(page.space, []).append(page)
    for space, members in by_space.items():
        if len(members) > 1:
            texts[f"{space}.rst"] = hub(space, members)
    texts["index.rst"] = contents("API reference", list(by_space), "Every public name, from the docstrings.")
    return texts


def hub(space: str, members: list[Page]) -> str:
    about = sys.modules[space].__doc__ if space in sys.modules else sys.modules["dl4all"].Tensor.__doc__
    return contents(space, [page.file for page in members], "\n".join(entries.body(about or "", "module")))


def contents(title: str, files: list[str], text: str) -> str:
    listed = "\n".join(f"   {file}" for file in files)
    return "\n".join(entries.title(title)) + f"\n{text}\n\n.. toctree::\n   :maxdepth: 1\n\n{listed}\n"


def main(folder: Path) -> None:
    texts = {f"reference/{file}": text for file, text in reference().items()}
    for page in [*DOCS.rglob("*.md"), *(ROOT / name for name in BESIDE)]:
        place = page.relative_to(DOCS) if page.is_relative_to(DOCS) else Path(page.name)
        texts[str(place)] = site_text(page)
    for name, text in texts.items():
        write(folder / name, text)
    pictures = {
        picture.relative_to(DOCS)
        for picture in DOCS.rglob("*.*")
        if picture.suffix in (".png", ".svg", ".jpg")
    }
    for picture in pictures:
        (folder / picture).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(DOCS / picture, folder / picture)
    for path in folder.rglob("*.*"):  # what is left of pages that are gone
        place = path.relative_to(folder)
        if str(place) not in texts and place not in pictures:
            path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
