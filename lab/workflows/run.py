"""Run the jobs of .github/workflows, or of .gitlab-ci.yml, here: each in a fresh Debian or Ubuntu.

    python lab/workflows/run.py --list
    sudo .venv/bin/python lab/workflows/run.py ci/shell ci/demo --base debian-12
    sudo .venv/bin/python lab/workflows/run.py ci/bare --matrix image=debian:13
    sudo .venv/bin/python lab/workflows/run.py gitlab/numpy2 --env PYTEST_ADDOPTS=tests/tensor

What is committed is checked out, not what lies in the folder. Steps run as they are written; of GitHub's
actions checkout, setup-python, cache, upload-artifact and download-artifact have a local counterpart, any
other is an error. docs/ci.md says what of GitHub and GitLab this cannot show.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

import click

sys.path.insert(0, str(Path(__file__).parents[2]))

from lab.workflows.fresh_root import RELEASES, UID, Root, RootError, base, fresh_root
from lab.workflows.jobs import ROOT, Job, Step, WorkflowError, all_jobs, expand, holds

NAMESPACE = "DL4ALL_WORKFLOW_NAMESPACE"
PYTHON_IMAGE = re.compile(r"python:(\d+\.\d+)-bookworm")
PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Outcome(NamedTuple):
    """How a step went."""

    name: str
    status: str
    """``ok``, ``skipped`` or what went wrong."""
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return self.status in ("ok", "skipped")


def base_of(image: str) -> tuple[str, str]:
    """The base for a job's image and, where the image is one of Python's, the version of Python."""
    if match := PYTHON_IMAGE.fullmatch(image):
        return "debian-12", match[1]
    name = image.replace(":", "-")
    if name not in RELEASES:
        raise WorkflowError(f"image {image!r}: expected one of {', '.join(RELEASES)} or python:X.Y-bookworm")
    return name, ""


class Run:
    """A job in a root: its environment, which steps may add to, and what it hands to later jobs."""

    def __init__(self, job: Job, root: Root, folder: Path, caches: Path, extra: Mapping[str, str]) -> None:
        self.job, self.root, self.folder, self.caches = job, root, folder, caches
        user_folder = "/builds/dl4all" if job.file == "gitlab" else f"{root.home}/work"
        self.workspace = f"{user_folder}/dl4all"
        self.env = {"CI": "true", "HOME": root.home, "PATH": PATHS, **extra}
        if not job.container:
            self.env["LANG"] = "C.UTF-8"
        branch = git("rev-parse", "--abbrev-ref", "HEAD")
        commit = git("rev-parse", "HEAD")
        if job.file == "gitlab":
            self.env |= {
                "CI_PROJECT_DIR": self.workspace,
                "CI_COMMIT_REF_NAME": branch,
                "CI_COMMIT_SHA": commit,
            }
        else:
            self.env |= {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": self.workspace, "GITHUB_SHA": commit,
                         "GITHUB_REF_NAME": branch, "GITHUB_REF_TYPE": "branch"}  # fmt: skip
            for name in ("ENV", "OUTPUT", "PATH", "STEP_SUMMARY"):
                self.env[f"GITHUB_{name}"] = f"/run/steps/{name.lower()}"
        self.env |= job.env
        self.context = {f"matrix.{key}": value for key, value in job.matrix.items()}
        self.context |= {"github.ref_name": branch, "github.ref_type": "branch", "github.run_id": "local",
                         "github.event_name": "workflow_dispatch", "runner.os": "Linux"}  # fmt: skip
        self.deadline = time.monotonic() + 60 * job.minutes

    def step(self, step: Step, show: Callable[[str], None]) -> Outcome:
        start = time.monotonic()
        try:
            if step.uses:
                self.use(step.uses.partition("@")[0], self.expanded(step.arguments), step.id)
                status = "ok"
            else:
                status = self.run(expand(step.run, self.context), self.expanded(step.env), step.id, show)
        except (WorkflowError, RootError, OSError, subprocess.SubprocessError) as error:
            status = str(error)
        return Outcome(expand(step.name, self.context), status, time.monotonic() - start)

    def expanded(self, values: Mapping[str, str]) -> dict[str, str]:
        return {key: expand(value, self.context) for key, value in values.items()}

    def run(self, commands: str, env: dict[str, str], step_id: str, show: Callable[[str], None]) -> str:
        """Run a step's commands as GitHub or GitLab would; ``ok``, or what went wrong."""
        steps = self.root.path / "run" / "steps"
        steps.mkdir(exist_ok=True, mode=0o777)
        for name in ("env", "output", "path", "step_summary"):
            (steps / name).touch()
            (steps / name).chmod(0o666)
        (steps / "commands").write_text(commands)
        if self.job.file == "gitlab":
            shell = ["bash", "-eo", "pipefail"]
        else:
            shell = ["sh", "-e"] if self.job.container else ["bash", "-e"]
        given = self.env | env
        command = self.root.command(
            [*shell, "/run/steps/commands"], given, self.workspace, as_root=not self.root.runner
        )
        left = self.deadline - time.monotonic()
        process = subprocess.Popen(
            ["timeout", "--kill-after=10", f"{max(left, 1):.0f}", *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace",
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            show(line)
        code = process.wait()
        for line in (steps / "path").read_text().splitlines():
            self.env["PATH"] = f"{line}:{self.env['PATH']}"
        self.env |= dict(line.split("=", 1) for line in (steps / "env").read_text().splitlines())
        for line in (steps / "output").read_text().splitlines():
            key, _, value = line.partition("=")
            self.context[f"steps.{step_id}.outputs.{key}"] = value
        for name in ("env", "output", "path"):
            (steps / name).write_text("")
        if code == 124:
            return f"not done within the {self.job.minutes} minutes of the job"
        return "ok" if code == 0 else f"exit status {code}"

    # ---- what takes the place of GitHub's actions -------------------------------------------------------

    def use(self, action: str, arguments: Mapping[str, str], step_id: str) -> None:
        known: dict[str, Callable[[Mapping[str, str]], Mapping[str, str]]] = {
            "actions/checkout": self.checkout,
            "actions/setup-python": self.setup_python,
            "actions/cache": self.cache,
            "actions/upload-artifact": self.upload,
            "actions/download-artifact": self.download,
        }
        if action not in known:
            raise WorkflowError(f"{action} has no counterpart here: {', '.join(known)} have")
        for key, value in known[action](arguments).items():
            self.context[f"steps.{step_id}.outputs.{key}"] = value

    def inside(self, path: str) -> Path:
        """Where a path of the job lies for this process."""
        return self.root.path / os.path.join(self.workspace, path).lstrip("/")  # noqa: PTH118

    def give(self, path: Path) -> None:
        if self.root.runner:
            subprocess.run(["chown", "-R", f"{UID}:{UID}", path], check=True)

    def checkout(self, _: Mapping[str, str]) -> Mapping[str, str]:
        target = self.inside("")
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{ROOT}", target], check=True)
        if self.job.container and not (self.root.path / "usr" / "bin" / "git").exists():
            shutil.rmtree(target / ".git")  # an archive is fetched where there is no git
        self.give(target.parent)
        return {}

    def setup_python(self, arguments: Mapping[str, str]) -> Mapping[str, str]:
        python = self.root.add_python(arguments["python-version"])
        self.env["PATH"] = f"{Path(python).parent}:{self.env['PATH']}"
        return {"python-path": python}

    def cache(self, arguments: Mapping[str, str]) -> Mapping[str, str]:
        """Each path is kept under the step's first restore key, or its key."""
        name = arguments.get("restore-keys", arguments["key"]).split()[0]
        for number, path in enumerate(arguments["path"].split()):
            kept = self.caches / f"{name}{number}"
            kept.mkdir(parents=True, exist_ok=True)
            self.inside(path).mkdir(parents=True, exist_ok=True)
            self.give(self.inside(path).parent)
            self.give(kept)
            self.root.mount(kept, str(self.inside(path).relative_to(self.root.path)))
        return {}

    def artifact(self, arguments: Mapping[str, str]) -> Path:
        return self.folder / "artifacts" / arguments.get("name", "artifact")

    def upload(self, arguments: Mapping[str, str]) -> Mapping[str, str]:
        target = self.artifact(arguments)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for path in arguments["path"].split():
            for found in self.inside("").glob(path.rstrip("/")):
                if found.is_dir():
                    shutil.copytree(found, target, dirs_exist_ok=True)
                else:
                    shutil.copy(found, target)
        if not any(target.iterdir()):
            raise WorkflowError(f"upload-artifact: nothing is at {arguments['path']}")
        return {}

    def download(self, arguments: Mapping[str, str]) -> Mapping[str, str]:
        source, target = self.artifact(arguments), self.inside(arguments.get("path", ""))
        if not source.exists():
            raise WorkflowError(f"download-artifact: no job has uploaded {source.name} yet")
        shutil.copytree(source, target, dirs_exist_ok=True)
        self.give(target)
        return {}


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def run_job(job: Job, stand_in: str, folder: Path, cache: Path, extra: Mapping[str, str]) -> list[Outcome]:
    """Run a job's steps in a fresh root; after one that fails only those with ``if: always()`` run."""
    wanted, python = base_of(job.image)
    name = stand_in or wanted
    runner = not job.container
    try:
        lower = base(name, cache / "bases", runner=runner)
    except RootError as error:
        return [Outcome("Make the system", str(error))]
    what = name if name == wanted else f"{name} in place of {wanted}"
    print(f"\n=== {job.label} on {what}", flush=True)
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    work = Path(tempfile.mkdtemp(prefix="root-", dir=folder))
    with (
        (logs / f"{re.sub(r'[^A-Za-z0-9.]+', '-', job.label)}-{name}.log").open("w") as log,
        fresh_root(lower, work, cache / "downloads", runner=runner) as root,
    ):

        def show(line: str) -> None:
            print(f"    {line}", end="", flush=True)
            log.write(line)

        run = Run(job, root, folder, cache / "kept", extra)
        if python:
            given = root.add_python(python)
            for link in ("python", "python3"):
                (root.path / "usr" / "local" / "bin" / link).symlink_to(given)
            run.env["PATH"] = f"{Path(given).parent}:{run.env['PATH']}"
        for step in job.steps:
            failed = any(not outcome.good for outcome in outcomes)
            if (failed and step.condition != "always()") or not holds(step.condition, run.context):
                outcomes.append(Outcome(expand(step.name, run.context), "skipped"))
                continue
            print(f"--- {expand(step.name, run.context)}", flush=True)
            log.write(f"--- {expand(step.name, run.context)}\n")
            outcomes.append(run.step(step, show))
            print(f"--- {outcomes[-1].status} ({outcomes[-1].seconds:.0f} s)", flush=True)
            log.write(f"--- {outcomes[-1].status} ({outcomes[-1].seconds:.0f} s)\n")
    return outcomes


def chosen(jobs: list[Job], names: tuple[str, ...], matrix: Mapping[str, str]) -> list[Job]:
    """The jobs with these names (``ci/test`` or ``ci``) and, of their matrices, these values.

    Raises:
        WorkflowError: a name or a value that no job has.
    """
    for name in names:
        if not any(name in (job.file, f"{job.file}/{job.key}") for job in jobs):
            known = dict.fromkeys(f"{job.file}/{job.key}" for job in jobs)
            raise WorkflowError(f"there is no job {name}; there are {', '.join(known)}")
    named = [job for job in jobs if not names or {job.file, f"{job.file}/{job.key}"} & set(names)]
    for key, value in matrix.items():
        if not any(job.matrix.get(key) == value for job in named):
            raise WorkflowError(f"no job has {key} = {value} in its matrix")
    return [job for job in named if all(job.matrix.get(key, value) == value for key, value in matrix.items())]


def pairs(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    if wrong := [value for value in values if "=" not in value]:
        raise click.BadParameter(f"{wrong[0]!r}: expected NAME=VALUE", param=option)
    return dict(value.split("=", 1) for value in values)


def enter_namespace() -> NoReturn:
    """Run this command again where its mounts and processes end with it."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        raise click.ClickException("fresh systems need Linux and root (mounts and chroot); --list does not")
    flags = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    os.environ[NAMESPACE] = "1"
    os.execvp("unshare", ["unshare", *flags, sys.executable, *sys.argv])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[JOB...]")
@click.option("--list", "as_list", is_flag=True, help="Print the jobs and their systems, and stop.")
@click.option("--gitlab", is_flag=True, help="The jobs of .gitlab-ci.yml.")
@click.option(
    "--base", "stand_in", type=click.Choice(list(RELEASES)), help="A system in place of the job's own."
)
@click.option(
    "--matrix", multiple=True, callback=pairs, metavar="KEY=VALUE", help="Only this part of a matrix."
)
@click.option("--env", "extra", multiple=True, callback=pairs, metavar="NAME=VALUE", help="For all steps.")
@click.option("--out", default="build/workflows", show_default=True, help="For logs and artifacts.")
@click.option("--cache", help="For bases and downloads.  [default: ~/.cache/dl4all-workflows]")
def main(
    names: tuple[str, ...], as_list: bool, gitlab: bool, stand_in: str | None, matrix: dict[str, str],
    extra: dict[str, str], out: str, cache: str | None,
) -> None:  # fmt: skip
    """Run each JOB, such as ci/test; all of a file, such as ci; or all there are."""
    try:
        jobs = chosen(all_jobs(gitlab=gitlab), names, matrix)
        if as_list:
            for job in jobs:
                print(f"{job.label:<50} {job.image}")
            return
        if NAMESPACE not in os.environ:
            enter_namespace()
        if git("status", "--porcelain"):
            print("Changes that are not committed are left out.")
        cached = Path(cache).absolute() if cache else Path.home() / ".cache" / "dl4all-workflows"
        folder = Path(out).absolute()
        failed = 0
        found = []
        for job in jobs:
            context = {"github.ref_type": "branch", "github.event_name": "workflow_dispatch"}
            if holds(job.condition, context):
                found.append((job, run_job(job, stand_in or "", folder, cached, extra)))
            else:
                found.append((job, [Outcome("all", "skipped")]))
        print("\n=== Summary")
        for job, outcomes in found:
            good = all(outcome.good for outcome in outcomes)
            failed += not good
            print(f"{'ok' if good else 'FAILED':<7} {job.label} ({job.image})")
            for outcome in outcomes:
                print(f"          {outcome.seconds:6.0f} s  {outcome.name}: {outcome.status}")
        sys.exit(1 if failed else 0)
    except WorkflowError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
