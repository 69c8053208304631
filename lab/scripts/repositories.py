"""Public scripts at fixed commits: their Python files, and the same with ``dl4all`` imported."""

from __future__ import annotations

import ast
import difflib
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
IMPORT = re.compile(r"^(?P<indent>\s*)(?P<statement>(?:import|from)\s+torch\b.*)$")
CPU = re.compile(r"""(?P<quote>["'])cpu(?P=quote)""")
PLAIN = re.compile(r"^import\s+torch(?P<modules>(?:\.\w+)*)(?:\s+as\s+(?P<name>\w+))?\s*(?P<comment>#.*)?$")


class Repository(NamedTuple):
    """A repository on GitHub and the commit whose files are run; without a commit, a folder of this one."""

    name: str
    commit: str

    @property
    def url(self) -> str:
        return f"https://github.com/{self.name}"

    def shown(self, name: str, script: str) -> str:
        """A script in a page: with a link to it, or the file of this repository."""
        link = f"{self.name} [{name}]({self.url}/blob/{self.commit}/{script})"
        return link if self.commit else f"`{self.name}/{script}`"


def python_files(repository: Repository, target: Path, mirror: Path | None = None) -> None:
    """Write the Python files of a repository's commit into a folder.

    Args:
        repository: whose files.
        target: the folder; one that is there already is left as it is.
        mirror: a folder of bare repositories, ``owner+name/repo`` or ``owner+name.git``, instead of GitHub.

    Raises:
        FileNotFoundError: the mirror does not have the repository.
        subprocess.CalledProcessError: git found no such repository or commit.
    """
    if target.exists():
        return
    if not repository.commit:
        shutil.copytree(ROOT / repository.name, target)
        return
    if mirror is None:
        git_directory = target.with_name(target.name + ".git")
        if not git_directory.exists():
            _git("init", "--quiet", "--bare", str(git_directory))
            _git("--git-dir", str(git_directory), "fetch", "--quiet", "--depth=1", repository.url + ".git",
                 repository.commit)  # fmt: skip
    else:
        git_directory = _mirrored(mirror, repository)
    prefix = ("--git-dir", str(git_directory))
    listing = _git(*prefix, "ls-tree", "-r", "-z", "--name-only", repository.commit).decode()
    unfinished = target.with_name(target.name + ".part")
    for name in filter(lambda name: name.endswith(".py"), listing.split("\0")):
        path = unfinished / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_git(*prefix, "show", f"{repository.commit}:{name}"))
    unfinished.rename(target)


def replace_imports(folder: Path, device: str = "cpu") -> None:
    """Import ``dl4all`` instead of ``torch`` in every Python file below a folder, for a device."""
    for path in folder.rglob("*.py"):
        # Carriage returns stay as they are, so that no other line changes.
        text = path.read_bytes().decode("utf-8", errors="surrogateescape")
        path.write_bytes(on_device(with_dl4all(text), device).encode("utf-8", errors="surrogateescape"))


def with_dl4all(source: str) -> str:
    """A script's text with ``dl4all`` instead of ``torch`` in its import statements, and nowhere else.

    >>> print(with_dl4all("import torch.nn as nn\\nfrom torch import optim\\nimport torch"))
    import dl4all.nn as nn
    from dl4all import optim
    import dl4all as torch
    """
    return "".join(_line_with_dl4all(line) for line in source.splitlines(keepends=True))


def on_device(source: str, device: str) -> str:
    """A script's text with the name of another device wherever a text is ``cpu``.

    >>> print(on_device("device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')", "vulkan:0"))
    device = torch.device('cuda' if torch.cuda.is_available() else 'vulkan:0')
    """
    return CPU.sub(rf"\g<quote>{device}\g<quote>", source)


def _line_with_dl4all(line: str) -> str:
    body = line.rstrip("\r\n")
    ending = line[len(body) :]
    found = IMPORT.match(body)
    if found is None:
        return line
    indent, statement = found["indent"], found["statement"].rstrip()
    if statement.startswith("from"):
        return indent + re.sub(r"^from\s+torch\b", "from dl4all", statement) + ending
    plain = PLAIN.match(statement)
    if plain is None:
        raise ValueError(f"expected an import of one module, got {statement!r}: import each on its own line")
    modules, name = plain["modules"], plain["name"]
    if name is not None:
        return f"{indent}import dl4all{modules} as {name}{ending}"
    # `import torch.nn` binds `torch`; the submodule is imported so that a missing one is noticed.
    submodule = f"import dl4all{modules}; " if modules else ""
    return f"{indent}{submodule}import dl4all as torch{ending}"


def other_changes(original: Path, changed: Path, device: str = "cpu") -> int:
    """How many lines of the Python files in two folders differ.

    Imports of ``torch`` are not counted, nor are devices' names.
    """
    count = 0
    for path in sorted(original.rglob("*.py")):
        before = on_device(path.read_text(encoding="utf-8", errors="replace"), device).splitlines()
        after = (
            (changed / path.relative_to(original)).read_text(encoding="utf-8", errors="replace").splitlines()
        )
        removed = [line[2:] for line in difflib.ndiff(before, after) if line.startswith("- ")]
        count += sum(IMPORT.match(line) is None for line in removed)
    return count


def imports_torch(path: Path) -> bool:
    """Whether a file still imports ``torch`` in a way that :func:`with_dl4all` did not see."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules = (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        )  # fmt: skip
        if any(module.split(".")[0] == "torch" for module in modules):
            return True
    return False


def _mirrored(mirror: Path, repository: Repository) -> Path:
    flat = repository.name.replace("/", "+")
    for candidate in (mirror / flat / "repo", mirror / f"{flat}.git"):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"{mirror} has neither {flat}/repo nor {flat}.git")


def _git(*arguments: str) -> bytes:
    return subprocess.run(("git", *arguments), check=True, stdout=subprocess.PIPE).stdout
