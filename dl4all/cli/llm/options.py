"""Options that the commands for language models share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]
OPTIONS = (
    click.option(
        "--device", default="auto", show_default=True, help="Where the model is: cpu, vulkan:0, ..."
    ),
    click.option("--adapter", type=click.Path(exists=True, file_okay=False), help="A folder with adapters."),
    click.option("--dtype", help="Of its weights, in place of the files' own: float32, bfloat16."),
    click.option(
        "--max-tokens", default=512, show_default=True, type=click.IntRange(min=1), help="Of an answer."
    ),
    click.option(
        "--temp", default=0.7, show_default=True, type=click.FloatRange(min=0), help="0: likeliest."
    ),
    click.option("--top-p", default=1.0, show_default=True, help="Tokens of this probability together."),
    click.option(
        "--min-p", default=0.05, show_default=True, help="Part of the likeliest token's probability."
    ),
    click.option("--top-k", default=0, show_default=True, help="So many tokens; 0 for all."),
    click.option("--repetition-penalty", default=1.0, show_default=True, help="Of tokens that were there."),
    click.option("--seed", type=int, help="Of the random numbers."),
)
"""Options of the place of a model, and of the drawing of tokens."""


def generation_options(command: Command) -> Command:
    """Add :data:`OPTIONS` to a command."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
