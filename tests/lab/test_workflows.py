"""The workflows of GitHub and GitLab do the same, can be run here, and are what docs/ci.md says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from lab.workflows.fresh_root import RELEASES, local_folders, parse_pip_settings
from lab.workflows.jobs import (
    GITLAB,
    ROOT,
    Job,
    WorkflowError,
    all_jobs,
    expand,
    github_jobs,
    gitlab_jobs,
    holds,
)
from lab.workflows.run import base_of, chosen

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

JOBS, GITLAB_JOBS = all_jobs(), all_jobs(gitlab=True)
KEYS = list(dict.fromkeys(job.key for job in JOBS))
TRIGGERS = {
    "ci": {'$CI_PIPELINE_SOURCE == "merge_request_event"',
           '$CI_PIPELINE_SOURCE == "push" && $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH'},
    "nightly": {'$CI_PIPELINE_SOURCE == "schedule"',
                '$CI_PIPELINE_SOURCE == "web" && $CI_COMMIT_TAG == null'},
    "release": {"$CI_COMMIT_TAG =~ /^v/", '$CI_PIPELINE_SOURCE == "web"'},
}  # fmt: skip
"""What GitLab calls the events of each workflow."""


def combinations_of(jobs: list[Job], key: str) -> list[Job]:
    return [job for job in jobs if job.key == key]


def commands(job: Job) -> list[str]:
    """A GitHub job's commands in GitLab's words: values of the matrix are variables, and it is root."""
    texts = [re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda match: f"${match[1].upper()}", step.run)
             for step in job.steps if step.run]  # fmt: skip
    return [text.replace("sudo ", "").strip() for text in texts]


def environment(job: Job) -> dict[str, str]:
    found = dict(job.env)
    for step in job.steps:
        found |= step.env
    return {name: value for name, value in found.items() if name not in ("PYTHON", "DEBIAN_FRONTEND")}


def test_both_have_the_same_jobs() -> None:
    assert set(KEYS) == {job.key for job in GITLAB_JOBS}


@pytest.mark.parametrize("key", KEYS)
def test_both_run_the_same_commands(key: str) -> None:
    ours, theirs = combinations_of(JOBS, key)[0], combinations_of(GITLAB_JOBS, key)[0]
    script = next(step for step in theirs.steps if step.name == "script")
    assert commands(ours) == script.run.splitlines()


@pytest.mark.parametrize("key", KEYS)
def test_both_have_the_same_limits_and_variables(key: str) -> None:
    ours, theirs = combinations_of(JOBS, key)[0], combinations_of(GITLAB_JOBS, key)[0]
    assert ours.minutes == theirs.minutes
    variables = {name: value for name, value in environment(theirs).items() if name not in theirs.matrix}
    assert environment(ours) == variables


@pytest.mark.parametrize("key", KEYS)
def test_both_have_the_same_matrices(key: str) -> None:
    """But for GitHub's systems: GitLab has images of one Debian for each Python."""
    matrices = [job.matrix for job in combinations_of(JOBS, key)]
    ours = {tuple(value for name, value in matrix.items() if name != "os") for matrix in matrices}
    assert ours == {tuple(job.matrix.values()) for job in combinations_of(GITLAB_JOBS, key)}


@pytest.mark.parametrize("key", KEYS)
def test_both_keep_the_same_files(key: str) -> None:
    kept = [
        {step.arguments["path"].rstrip("/") for step in combinations_of(jobs, key)[0].steps
         if step.uses.startswith("actions/upload-artifact")}
        for jobs in (JOBS, GITLAB_JOBS)
    ]  # fmt: skip
    assert kept[0] == kept[1]


@pytest.mark.parametrize("key", [key for key in KEYS if key != "publish"])
def test_both_run_at_the_same_events(key: str) -> None:
    document = yaml.safe_load(GITLAB.read_text("utf-8"))
    rules = document[document[key]["extends"]]["rules"]
    assert {rule["if"] for rule in rules} == TRIGGERS[combinations_of(JOBS, key)[0].file]


def test_nothing_is_published_without_a_tag_and_a_switch() -> None:
    publish = combinations_of(JOBS, "publish")[0]
    for kind, switch, expected in (("tag", "true", True), ("tag", "", False), ("branch", "true", False)):
        context = {"github.ref_type": kind, "vars.PYPI_PUBLISH": switch}
        assert holds(publish.condition, context) is expected
    document = yaml.safe_load(GITLAB.read_text("utf-8"))
    assert document["publish"]["rules"] == [{"if": '$CI_COMMIT_TAG =~ /^v/ && $PYPI_PUBLISH == "true"'}]


def test_every_supported_python_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line}
    assert {job.matrix["python"] for job in combinations_of(JOBS, "test")} == declared


def test_every_system_has_a_base_here() -> None:
    images = {job.image for job in [*JOBS, *GITLAB_JOBS]} - {"windows-2025", "macos-15"}  # not run here
    assert {base_of(image)[0] for image in images} == set(RELEASES)


def test_the_page_lists_every_job() -> None:
    page = (ROOT / "docs" / "ci.md").read_text("utf-8").partition("## Run a job here")[0]
    listed = re.findall(r"^\| `([\w-]+/[\w-]+)` \|", page, re.M)
    assert listed == list(dict.fromkeys(f"{job.file}/{job.key}" for job in JOBS))


# ---- the parser and what runs the jobs -------------------------------------------------------------------


def test_a_matrix_is_a_job_for_each_combination(tmp_path: Path) -> None:
    file = tmp_path / "some.yml"
    file.write_text(
        "jobs:\n  a:\n    runs-on: ${{ matrix.os }}\n    strategy: {matrix: {os: [x, y], n: [1, 2]}}\n"
        "    env: {FLAG: true}\n    steps: [{run: echo}]\n"
    )
    jobs = github_jobs(file)
    assert [(job.image, job.matrix["n"]) for job in jobs] == [("x", "1"), ("x", "2"), ("y", "1"), ("y", "2")]
    assert jobs[0].env == {"FLAG": "true"}
    assert jobs[0].label == "some/a (os x, n 1)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("services: {}\n    steps: []", "a: services is not understood"),
        ("steps: [{run: x, shell: pwsh}]", "step 1: shell is not understood"),
        ("steps: [{name: x}]", "step 1: expected either run or uses"),
        ("strategy: {matrix: {include: []}}\n    steps: []", "include and exclude are not understood"),
    ],
)
def test_what_is_not_understood_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "some.yml"
    file.write_text(f"jobs:\n  a:\n    runs-on: x\n    {text}\n")
    with pytest.raises(WorkflowError, match=message):
        github_jobs(file)


def test_gitlab_jobs_take_over_what_they_extend(tmp_path: Path) -> None:
    file = tmp_path / ".gitlab-ci.yml"
    file.write_text(
        "default: {timeout: 7 minutes}\nvariables: {A: '1'}\n"
        ".base: {image: 'debian:$N', variables: {B: '2', C: '0'}}\n"
        "job:\n  extends: .base\n  variables: {C: '3'}\n  parallel: {matrix: [{N: [12, 13]}]}\n"
        "  script: [one, two]\n  artifacts: {paths: [out]}\n"
    )
    jobs = gitlab_jobs(file)
    assert [job.image for job in jobs] == ["debian:12", "debian:13"]
    assert jobs[1].env == {"A": "1", "B": "2", "C": "3", "N": "13"}
    assert jobs[0].minutes == 7
    assert [(step.name, step.run) for step in jobs[0].steps if step.run] == [("script", "one\ntwo")]
    assert jobs[0].steps[-1].arguments["path"] == "out"


def test_expressions() -> None:
    assert expand("a ${{ matrix.x }}${{matrix.x}}", {"matrix.x": "1"}) == "a 11"
    with pytest.raises(WorkflowError, match=r"no value for matrix\.y"):
        expand("${{ matrix.y }}", {"matrix.x": "1"})
    with pytest.raises(WorkflowError, match="cannot tell"):
        holds("contains(github.ref, 'x')", {})
    with pytest.raises(WorkflowError, match=r"no value for github\.actor"):
        holds("github.actor == 'x'", {})
    assert holds("", {})
    assert holds("always()", {})
    assert holds("a != 'b' && a == 'c'", {"a": "c"})


def test_jobs_are_chosen_by_name_and_matrix() -> None:
    several = chosen(JOBS, ("ci/shell", "release"), {})
    assert [job.key for job in several] == [
        "shell", "distributions", "other-systems", "other-systems", "publish",
    ]  # fmt: skip
    assert [job.image for job in chosen(JOBS, ("ci/bare",), {"image": "debian:13"})] == ["debian:13"]
    with pytest.raises(WorkflowError, match="there is no job ci/tset; there are ci/test"):
        chosen(JOBS, ("ci/tset",), {})
    with pytest.raises(WorkflowError, match="no job has python = 2"):
        chosen(JOBS, ("ci/test",), {"python": "2"})
    with pytest.raises(WorkflowError, match="expected one of debian-12"):
        base_of("windows-2022")


def test_settings_of_pip_come_from_files_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "index" / "simple").mkdir(parents=True)
    (tmp_path / "wheels").mkdir()
    listed = (
        f"global.cert='/x'\nglobal.extra-index-url='file://{tmp_path}/index/simple https://example.org/simple'\n"
        f"global.find-links='/elsewhere'\n:env:.find-links='{tmp_path}/wheels'\n:env:.default-timeout='9'\n"
    )
    settings = parse_pip_settings(listed)
    assert settings["find-links"] == f"{tmp_path}/wheels"
    assert settings["timeout"] == "9"
    assert "cert" not in settings
    assert local_folders(settings) == [tmp_path / "index", tmp_path / "wheels"]
