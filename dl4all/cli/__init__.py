"""The ``dl4all`` command."""

from __future__ import annotations

from importlib import import_module

import click

from dl4all.cli.run import run
from dl4all.pytorch.names.version import __version__

COMMANDS = {
    "automl": "Find a network for a table, pictures or series, and write a report.",
    "bench": "Measure how fast this machine's devices are.",
    "chat": "Talk with a language model.",
    "convert": "Write weights in another format.",
    "devices": "List the devices of this machine.",
    "doctor": "Check drivers, libraries, permissions and a computation.",
    "emulate": "Time a network on an accelerator of any size, cycle by cycle.",
    "finetune": "Let adapters of a language model learn from examples.",
    "generate": "Print what a language model says after a prompt.",
    "inspect": "Tell what is in an ONNX model.",
    "launch": "Run a script in several processes that train together.",
    "parameter-server": "Keep parameters for processes that train without waiting for each other.",
    "place": "Show which device computes what of a network, and why.",
    "profile": "Run a script and show where its time goes.",
    "quantize": "Hold a trained network's weights in fewer bits, and say what that costs.",
    "run": "Compute an ONNX model.",
    "search": "Search a script's space of networks for the best ones.",
    "serve": "Answer requests for models over HTTP and gRPC.",
    "top": "Show what the devices of all processes do.",
    "torch-report": "Show which ops of a PyTorch script run on the CPU.",
    "train": "Train a network from a configuration file.",
    "tune": "Find the fastest kernels of a device.",
}
"""The commands, each with its line in the help, and in a module of its name, loaded when it is called."""

MODULES = {
    "automl": ("processes.automl", "automl"),
    "chat": ("llm.chat", "chat"),
    "convert": ("model_files", "convert"),
    "emulate": ("accelerator.emulate", "emulate"),
    "finetune": ("llm.finetune", "finetune"),
    "generate": ("llm.generate", "generate"),
    "inspect": ("model_files", "inspect_model"),
    "launch": ("processes.launch", "launch"),
    "parameter-server": ("processes.parameter_server", "parameter_server"),
    "run": ("run_model", "run_model"),
    "search": ("processes.search", "search"),
    "serve": ("processes.serve", "serve"),
}
"""The module and the function of commands that have none of their own name."""


class CommandGroup(click.Group):
    """The commands of :data:`COMMANDS`, of which only the one that is called is loaded."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        word = cmd_name.replace("-", "_")
        module, function = MODULES.get(cmd_name, (word, word))
        found: click.Command = getattr(import_module(f"dl4all.cli.{module}"), function)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dl4all")
def cli() -> None:
    """Deep learning on any GPU."""


def main() -> None:
    """Entry point of the console script."""
    run(cli, "dl4all")
