"""The jobs of .github/workflows and of .gitlab-ci.yml, each as the steps that it takes in one system.

A job with a matrix is one job for each combination. Only what these files use is understood; anything else
is a ``WorkflowError``, so that a job never passes here because a part of it was not seen.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github" / "workflows"
GITLAB = ROOT / ".gitlab-ci.yml"
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
NOT_JOBS = {"stages", "default", "variables", "workflow", "include", "image", "cache"}
"""Keys of .gitlab-ci.yml that are no jobs; names that begin with a dot are none either."""


JOB_KEYS = "name runs-on container timeout-minutes strategy steps env needs if permissions environment"


class WorkflowError(Exception):
    """A workflow says something that is not understood, or that does not exist."""


class Step(NamedTuple):
    """Commands to run, or an action to use with its arguments."""

    name: str
    run: str = ""
    uses: str = ""
    arguments: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
    id: str = ""
    condition: str = ""


class Job(NamedTuple):
    """One combination of a job's matrix."""

    file: str
    key: str
    matrix: Mapping[str, str]
    image: str
    """The system: ``ubuntu-24.04``, or the name of a container such as ``debian:13``."""
    container: bool
    """Runs as root in a bare image; otherwise as a user with sudo."""
    minutes: int
    env: Mapping[str, str]
    steps: tuple[Step, ...]
    condition: str = ""

    @property
    def label(self) -> str:
        """``ci/test (python 3.12)``."""
        values = ", ".join(f"{key} {value}" for key, value in self.matrix.items())
        return f"{self.file}/{self.key}" + (f" ({values})" if values else "")


# ---- expressions ---------------------------------------------------------------------------------------


def expand(text: str, context: Mapping[str, str]) -> str:
    """Replace each ``${{ NAME }}`` by the context's value; a name that it lacks is an error."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in context:
            raise WorkflowError(f"{match[0]}: no value for {match[1]}")
        return context[match[1]]

    return EXPRESSION.sub(value, text)


def holds(condition: str, context: Mapping[str, str]) -> bool:
    """Whether an ``if`` of comparisons such as ``github.ref_type == 'tag'``, joined by ``&&``, is true.

    A name under ``vars.`` that has no value is empty, as on GitHub.
    """
    for part in filter(None, re.split(r"\s*&&\s*", condition.strip())):
        if part == "always()":
            continue
        compared = re.fullmatch(r"([\w.-]+) (==|!=) '([^']*)'", part)
        if not compared:
            raise WorkflowError(f"if: {condition}: cannot tell whether {part!r} is true")
        name, operator, expected = compared.groups()
        if name not in context and not name.startswith("vars."):
            raise WorkflowError(f"if: {condition}: no value for {name}")
        if (context.get(name, "") == expected) != (operator == "=="):
            return False
    return True


def combinations(matrix: Mapping[str, list[Any]]) -> list[dict[str, str]]:
    """Each choice of one value of every key; keys in the order of the file."""
    if {"include", "exclude"} & set(matrix):
        raise WorkflowError("matrix: include and exclude are not understood")
    return [
        dict(zip(matrix, map(str, values), strict=True)) for values in itertools.product(*matrix.values())
    ]


# ---- GitHub --------------------------------------------------------------------------------------------


def texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    """Values as GitHub hands them on: booleans in lower case."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (values or {}).items()
    }


def github_jobs(file: Path) -> list[Job]:
    """All jobs of one workflow, in the order of the file.

    Raises:
        WorkflowError: a job or step has a key that is not understood.
    """
    workflow = load(file)
    found = []
    for key, job in workflow["jobs"].items():
        where = f"{file.name}: {key}"
        only(job, JOB_KEYS, where)
        steps = tuple(github_step(step, f"{where}: step {i}") for i, step in enumerate(job["steps"], 1))
        for matrix in combinations(job.get("strategy", {}).get("matrix", {})):
            context = {f"matrix.{name}": value for name, value in matrix.items()}
            image = expand(job.get("container", job["runs-on"]), context)
            env = texts(workflow.get("env")) | texts(job.get("env"))
            # steps are expanded when they run: only then do the outputs of earlier ones exist
            found.append(
                Job(file.stem, key, matrix, image, "container" in job, job.get("timeout-minutes", 360), env,
                    steps, job.get("if", ""))
            )  # fmt: skip
    return found


def github_step(step: Mapping[str, Any], where: str) -> Step:
    only(step, "name run uses with env id if", where)
    if ("run" in step) == ("uses" in step):
        raise WorkflowError(f"{where}: expected either run or uses")
    name = step.get("name") or step.get("uses") or step["run"].splitlines()[0]
    return Step(
        name, step.get("run", ""), step.get("uses", ""), texts(step.get("with")), texts(step.get("env")),
        step.get("id", ""), step.get("if", ""),
    )  # fmt: skip


def only(mapping: Mapping[str, Any], known: str, where: str) -> None:
    if strange := set(mapping) - set(known.split()):
        raise WorkflowError(f"{where}: {', '.join(sorted(strange))} is not understood")


def load(file: Path) -> dict[str, Any]:
    if not file.exists():
        raise WorkflowError(f"there is no {file}")
    loaded: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
    return loaded


# ---- GitLab --------------------------------------------------------------------------------------------


def gitlab_jobs(file: Path = GITLAB) -> list[Job]:
    """All jobs of .gitlab-ci.yml as the same kind of steps: checkout, before_script, script, artifacts.

    Raises:
        WorkflowError: a job has a key that is not understood.
    """
    document = load(file)
    found = []
    for key, job in document.items():
        if key in NOT_JOBS or key.startswith("."):
            continue
        where = f"{file.name}: {key}"
        merged = {**document.get("default", {}), **extended(document, job)}
        only(merged, "stage image parallel before_script script variables artifacts cache timeout rules "
             "needs id_tokens extends environment tags", where)  # fmt: skip
        minutes = re.fullmatch(r"(\d+) minutes", merged.get("timeout", "60 minutes"))
        if not minutes:
            raise WorkflowError(f"{where}: timeout {merged['timeout']!r}: expected 'N minutes'")
        steps = [Step("Check out the source", uses="actions/checkout@v4")]
        steps += [
            Step(part, run="\n".join(lines))
            for part in ("before_script", "script")
            if (lines := merged.get(part))
        ]
        if paths := merged.get("artifacts", {}).get("paths"):
            artifact = {"name": key, "path": "\n".join(paths)}
            steps.append(
                Step("artifacts", uses="actions/upload-artifact@v4", arguments=artifact, condition="always()")
            )
        lists = merged.get("parallel", {}).get("matrix", [{}])
        for matrix in itertools.chain.from_iterable(map(combinations, lists)):
            env = texts(document.get("variables")) | texts(merged.get("variables")) | matrix
            image = string.Template(merged["image"]).substitute(env)
            found.append(Job("gitlab", key, matrix, image, True, int(minutes[1]), env, tuple(steps)))
    return found


def extended(document: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    """A job with what it takes over from the one that it extends; variables are joined."""
    if "extends" not in job:
        return dict(job)
    parent = extended(document, document[job["extends"]])
    variables = {**parent.get("variables", {}), **job.get("variables", {})}
    return {**parent, **job, **({"variables": variables} if variables else {})}


def all_jobs(*, gitlab: bool = False) -> list[Job]:
    """Every job of this checkout."""
    if gitlab:
        return gitlab_jobs()
    return [job for file in sorted(GITHUB.glob("*.yml")) for job in github_jobs(file)]
