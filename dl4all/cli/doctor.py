"""``dl4all doctor``: what works on this machine, and what to do about what does not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dl4all.cli.checks import Finding, examine


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--report", "path", type=click.Path(dir_okay=False, path_type=Path),
    help="Write all facts, measurements and ten benchmarks of each device into a JSON file.",
)  # fmt: skip
def doctor(as_json: bool, path: Path | None) -> int:
    """Check drivers, libraries, permissions, caches and a real computation on every device.

    The exit status is 1 if something that dl4all needs is missing or failing.

    \b
    dl4all doctor --report my-card.json   takes a minute; attach it to an issue
    """
    findings = list(examine())
    if path is not None:
        from dl4all.cli.report import report  # which loads NumPy and all of the library

        text = json.dumps(report(findings), indent=1, default=sorted)
        for folder, shown in ((sys.prefix, "PREFIX"), (str(Path.home()), "~")):
            text = text.replace(json.dumps(folder)[1:-1], shown)
        path.write_text(f"{text}\n", encoding="utf-8")
        print(f"wrote {path}; look it over before you send it")
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        console = Console()
        Console(width=None if console.is_terminal else 160).print(_table(findings))
    return int(any(finding.ok is False for finding in findings))


def _table(findings: list[Finding]) -> Table:
    marks = {True: "[green]ok[/]", None: "[yellow]--[/]", False: "[red]no[/]"}
    table = Table("", "", "seen", "what to do")
    for finding in findings:
        # Text: a message such as "[vulkan] ..." is not markup.
        table.add_row(marks[finding.ok], finding.what, Text(finding.seen), Text(finding.remedy))
    return table
