"""The ``dl4all`` command."""

from __future__ import annotations

import click

from dl4all.cli.bench import bench
from dl4all.cli.devices import devices
from dl4all.cli.doctor import doctor
from dl4all.cli.place import place
from dl4all.cli.profile import profile
from dl4all.cli.run import run
from dl4all.cli.top import top
from dl4all.cli.torch_report import torch_report
from dl4all.cli.train import train
from dl4all.cli.tune import tune


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dl4all", prog_name="dl4all")
def cli() -> None:
    """Deep learning on any GPU."""


cli.add_command(bench)
cli.add_command(devices)
cli.add_command(doctor)
cli.add_command(place)
cli.add_command(profile)
cli.add_command(top)
cli.add_command(torch_report)
cli.add_command(train)
cli.add_command(tune)


def main() -> None:
    """Entry point of the console script."""
    run(cli, "dl4all")
