"""Mutation testing by hand-picked faults: does the suite see each fault in tests/faults.toml?

    python tools/faults.py [--only NAME] [--jobs 2] [--stage near]

Each fault is put into a copy of the tree, and tests run there until one fails:

- ``near``: the tests that the fault names, those of them that plain ``pytest`` selects
- ``short``: all that plain ``pytest`` selects
- ``validation``: the tests of Vulkan under its validation layers, for faults whose ``env`` asks for them;
  these change no result on a driver that runs one command after the other
- ``long``: the same with ``DL4ALL_TEST_FULL=1``

The short run is a part of the long one. So what an earlier stage sees the later ones see as well, and they
are not run for it. A test that fails without the fault, too, proves nothing: it is left out, and the stage
is run again; only what hangs, or ends the process, is believed at once. What nothing has seen is in the
table, and wants a test.

Results go to a JSON file, from which an interrupted run goes on, and to a Markdown table beside it. A fault
that has changed in the list is run again; after changes to the tests, remove the file.

A copy never runs a shader that was compiled from other source, because compiled shaders are found by a
digest of their source (``runtime/spirv/module_store.py``). It has a cache folder of its own nevertheless,
which begins with the user's compiled shaders, as a fault may leave anything there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).absolute().parents[1]
LIST = "tests/faults.toml"
THE_LIST_ITSELF = "tests/suite/test_faults.py"  # sees every fault, by the text that is gone
VALIDATION = "DL4ALL_VALIDATION"
FULL = "DL4ALL_TEST_FULL"
REPORT = "DL4ALL_FAULTS_REPORT"  # the file for the names of tests that fail


@dataclass(frozen=True)
class Fault:
    """One entry of the list."""

    name: str
    kind: str
    file: str
    old: str  # occurs once in the file
    new: str
    near: tuple[str, ...]  # arguments of pytest
    env: dict[str, str] = field(default_factory=dict)  # for these

    @property
    def digest(self) -> str:
        """What the result depends on."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


class Stage(NamedTuple):
    """A set of tests, and after how long they count as hanging."""

    name: str
    seconds: float
    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = {}


WHOLE = ("-n", "2", "--dist", "worksteal", f"--ignore={THE_LIST_ITSELF}")
STAGES = ("near", "short", "validation", "long")


def stages_of(fault: Fault, last: str = "long") -> list[Stage]:
    """The stages of a fault, up to the last one that is wanted."""
    found = [
        Stage("near", 300.0, fault.near, fault.env),
        Stage("short", 3600.0, WHOLE),
        Stage("validation", 3 * 3600.0, ("-n", "2", "-m", "vulkan and not slow"), {VALIDATION: "1"}),
        Stage("long", 6 * 3600.0, WHOLE, {FULL: "1"}),
    ]
    wanted = STAGES[: STAGES.index(last) + 1]
    return [s for s in found if s.name in wanted and (s.name != "validation" or VALIDATION in fault.env)]


def read_faults(file: Path = ROOT / LIST) -> list[Fault]:
    """The list, in its order."""
    entries = tomllib.loads(file.read_text("utf-8"))["fault"]
    return [Fault(**{**entry, "near": tuple(entry["near"])}) for entry in entries]


def apply(fault: Fault, tree: Path) -> None:
    """Put a fault into a copy of the tree."""
    file = tree / fault.file
    text = file.read_text("utf-8")
    if (count := text.count(fault.old)) != 1:
        raise click.ClickException(f"{fault.name}: its text occurs {count} times in {fault.file}")
    file.write_text(text.replace(fault.old, fault.new), "utf-8")
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()  # Python compares sizes and seconds, which may be equal


# pytest loads this module as a plugin of the runs that this module starts.


def pytest_runtest_logreport(report: Any) -> None:
    """Note a test that failed."""
    _note(report)


def pytest_collectreport(report: Any) -> None:
    """Note a file that could not be imported."""
    _note(report)


def _note(report: Any) -> None:
    if report.failed and REPORT in os.environ:
        with Path(os.environ[REPORT]).open("a", encoding="utf-8") as stream:
            stream.write(report.nodeid + "\n")


class Outcome(NamedTuple):
    """How a run of pytest ended; the code is None where it hung."""

    code: int | None
    failed: list[str]
    output: str
    seconds: float


class Workshop:
    """A folder with copies of the tree, one of them without a fault."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sound = folder / "sound"
        subprocess.run(["git", "clone", "--quiet", "--local", ROOT, self.sound], check=True)
        changed = _names("diff", "--name-only", "-z", "HEAD")
        for name in [*changed, *_names("ls-files", "--others", "--exclude-standard", "-z")]:
            if (ROOT / name).is_file():
                (self.sound / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.sound / name, follow_symlinks=False)
            else:
                (self.sound / name).unlink(missing_ok=True)
        self._check_imports()

    def _check_imports(self) -> None:
        """Python must take dl4all from the copy, not from where it is installed."""
        code = "import dl4all.runtime.hazards as m; print(m.__file__)"
        env = self._environment(self.sound, {})
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=self.sound, env=env, capture_output=True, text=True, check=True
        )
        if not done.stdout.startswith(str(self.sound)):
            raise click.ClickException(f"a copy of the tree imports {done.stdout.strip()}")

    def _environment(self, tree: Path, more: Mapping[str, str]) -> dict[str, str]:
        cache = {"DL4ALL_CACHE_DIR": str(_cache_of(tree))}
        return {**os.environ, "PYTHONPATH": str(tree), **cache, REPORT: str(_report_of(tree)), **more}

    @contextlib.contextmanager
    def copy(self, fault: Fault) -> Iterator[Path]:
        """A copy of the tree with a fault."""
        tree = self.folder / fault.name
        subprocess.run(["cp", "-a", self.sound, tree], check=True)
        try:
            apply(fault, tree)
            yield tree
        finally:
            shutil.rmtree(tree, ignore_errors=True)
            shutil.rmtree(_cache_of(tree), ignore_errors=True)

    def pytest(self, tree: Path, arguments: Sequence[str], env: Mapping[str, str], seconds: float) -> Outcome:
        """Run tests of a copy."""
        report, cache = _report_of(tree), _cache_of(tree)
        report.unlink(missing_ok=True)
        if not cache.exists():
            _link_shaders(cache)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tools.faults"]
        start = time.monotonic()
        with subprocess.Popen(
            [*command, *arguments],
            cwd=tree,
            env=self._environment(tree, env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=seconds)
                code: int | None = process.returncode
            except subprocess.TimeoutExpired:
                output, code = "", None
            finally:
                with contextlib.suppress(ProcessLookupError):  # what a fault leaves running, too
                    os.killpg(process.pid, signal.SIGKILL)
        failed = report.read_text("utf-8").splitlines() if report.exists() else []
        return Outcome(code, list(dict.fromkeys(failed)), output, time.monotonic() - start)


def _names(*command: str) -> list[str]:
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, check=True)
    return [name.decode() for name in done.stdout.split(b"\0") if name]


def _cache_of(tree: Path) -> Path:
    return tree.with_name(f"{tree.name}.cache")


def _report_of(tree: Path) -> Path:
    return tree.with_name(f"{tree.name}.failed")


def _link_shaders(cache: Path) -> None:
    """Begin a cache folder with the shaders of the user's: a file there is replaced, never changed."""
    from dl4all.runtime.records.file_cache import folder

    compiled = folder() / "spirv"
    cache.mkdir()
    if compiled.exists():
        links = ["-l"] if compiled.stat().st_dev == cache.stat().st_dev else []
        subprocess.run(["cp", "-a", *links, compiled, cache], check=True)


def run_stages(fault: Fault, record: dict[str, Any], workshop: Workshop, last: str) -> None:
    """Run the stages that a fault has not passed, until a test fails."""
    left_out = [f"--deselect={test}" for test in record["left_out"]]
    with workshop.copy(fault) as tree:
        for stage in stages_of(fault, last):
            if stage.name in record["passed"]:
                continue
            outcome = workshop.pytest(tree, ["-x", *stage.arguments, *left_out], stage.env, stage.seconds)
            record["seconds"] = round(record["seconds"] + outcome.seconds, 1)
            if outcome.code == 0 or (outcome.code == 5 and left_out):
                record["passed"].append(stage.name)
                continue
            if outcome.code == 5:
                raise click.ClickException(f"{fault.name}: no tests in {' '.join(stage.arguments)}")
            record["stage"] = stage.name
            record["caught_by"] = outcome.failed[0] if outcome.failed else _other_end(outcome)
            return


def _other_end(outcome: Outcome) -> str:
    """How a run failed in which no test did."""
    if outcome.code is None:
        return f"no end after {outcome.seconds:.0f} s"
    if outcome.code < 0:
        return f"the process ended by {signal.Signals(-outcome.code).name}"
    lines = [line for line in outcome.output.splitlines() if line.strip()]
    return f"pytest ended with {outcome.code}: {lines[-1].strip() if lines else 'it says nothing'}"


def unsound(records: Iterable[dict[str, Any]], faults: Mapping[str, Fault], workshop: Workshop) -> bool:
    """Leave out the tests that fail without a fault as well; whether there were any."""
    found = False
    by_env: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if "::" in record.get("caught_by", "") and not record.get("control"):
            stage = next(s for s in stages_of(faults[record["name"]]) if s.name == record["stage"])
            by_env.setdefault(json.dumps(dict(stage.env), sort_keys=True), []).append(record)
    for env, group in by_env.items():
        tests = sorted({record["caught_by"] for record in group})
        click.echo(f"Control: {len(tests)} tests without a fault.")
        outcome = workshop.pytest(workshop.sound, tests, json.loads(env), 3600.0)
        if outcome.code not in (0, 1):
            text = outcome.output[-2000:]
            raise click.ClickException(f"the control run ended with {outcome.code}:\n{text}")
        for record in group:
            if record["caught_by"] in outcome.failed:
                found = True
                record["left_out"].append(record.pop("caught_by"))
                del record["stage"]
            else:
                record["control"] = True
    return found


def table(faults: Sequence[Fault], records: Mapping[str, dict[str, Any]]) -> str:
    """The results in Markdown."""
    done = [(fault, records[fault.name]) for fault in faults if fault.name in records]
    counts = [f"{sum(r.get('stage') == stage for _, r in done)} by {stage}" for stage in STAGES]
    missed = sum("caught_by" not in record for _, record in done)
    lines = [
        f"{len(done)} faults: caught {', '.join(counts)}; {missed} by none of the stages that were run.",
        "",
        "| fault | kind | caught by | stage | seconds |",
        "|---|---|---|---|---|",
    ]
    for fault, record in done:
        caught_by = record.get("caught_by", "").replace("|", "\\|")
        test = f"`{caught_by}`" if caught_by else f"nothing in {', '.join(record['passed'])}"
        stage = record.get("stage", "-")
        lines.append(f"| {fault.name} | {fault.kind} | {test} | {stage} | {record['seconds']:.0f} |")
    return "\n".join(lines) + "\n"


def new_record(fault: Fault) -> dict[str, Any]:
    """Of a fault that has not been run."""
    return {"name": fault.name, "digest": fault.digest, "passed": [], "left_out": [], "seconds": 0.0}


def pending(fault: Fault, record: Mapping[str, Any], last: str) -> bool:
    """Whether a fault has stages to run."""
    return "caught_by" not in record and any(s.name not in record["passed"] for s in stages_of(fault, last))


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Only this fault; may be given more than once.")
@click.option("--jobs", type=click.IntRange(1, 2), default=1, show_default=True, help="Faults at a time.")
@click.option("--stage", "last", type=click.Choice(STAGES), default="long", help="The last stage to run.")
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    default=ROOT / "build" / "faults.json",
    help="Where results go; the table lies beside it.",
)
def main(only: tuple[str, ...], jobs: int, last: str, results: Path) -> None:
    """Try whether the tests see the faults of tests/faults.toml."""
    faults = {fault.name: fault for fault in read_faults()}
    if unknown := set(only) - faults.keys():
        raise click.UsageError(f"no fault is called {', '.join(sorted(unknown))}")
    chosen = [faults[name] for name in only or faults]
    records: dict[str, dict[str, Any]] = json.loads(results.read_text("utf-8")) if results.exists() else {}
    for name, fault in faults.items():
        if name not in records or records[name]["digest"] != fault.digest:
            records[name] = new_record(fault)
    lock = threading.Lock()

    def save() -> None:
        tried = {name: r for name, r in records.items() if r["passed"] or r["left_out"] or "caught_by" in r}
        with lock:
            results.parent.mkdir(parents=True, exist_ok=True)
            results.write_text(json.dumps(tried, indent=1), "utf-8")
            results.with_suffix(".md").write_text(table(list(faults.values()), tried), "utf-8")

    with tempfile.TemporaryDirectory(prefix="dl4all-faults-") as folder:
        workshop = Workshop(Path(folder))

        def attempt(fault: Fault) -> None:
            record = records[fault.name]
            run_stages(fault, record, workshop, last)
            save()
            caught = record.get("caught_by", "NOTHING")
            click.echo(f"{fault.name}: {record.get('stage', last)}, {record['seconds']:.0f} s: {caught}")

        again = True
        while again:
            waiting = [fault for fault in chosen if pending(fault, records[fault.name], last)]
            with ThreadPoolExecutor(jobs) as threads:
                for future in [threads.submit(attempt, fault) for fault in waiting]:
                    future.result()
            again = unsound([records[fault.name] for fault in chosen], faults, workshop)
            save()
    missed = [fault.name for fault in chosen if "caught_by" not in records[fault.name]]
    shown = results.with_suffix(".md")
    click.echo(f"{len(chosen) - len(missed)} of {len(chosen)} faults were caught; the table is {shown}")
    if missed:
        raise click.ClickException(f"not caught: {', '.join(missed)}")


if __name__ == "__main__":
    main()
