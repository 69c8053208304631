"""Options that the commands for language models share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dl4all.llm import Decoder, Tokenizer

Command = Callable[..., Any]
OPTIONS = (
    click.option(
        "--device",
        default="auto",
        show_default=True,
        help="Where the model is: cpu, vulkan:0, ...; with commas, several: layers lie where memory is free.",
    ),
    click.option("--adapter", type=click.Path(exists=True, file_okay=False), help="A folder with adapters."),
    click.option(
        "--dtype",
        help="Of its weights, in place of the files' own: float32, bfloat16, q8_0, q4_0.",
    ),
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


def places(device: str) -> dict[str, Any]:
    """The arguments of :func:`dl4all.llm.load` for one device, or for several with commas between them.

    >>> places("cpu"), places("vulkan:0, cpu")
    ({'device': 'cpu'}, {'devices': ['vulkan:0', 'cpu']})
    """
    names = [name.strip() for name in device.split(",")]
    return {"device": device} if len(names) == 1 else {"devices": names}


def loaded(model: str, *, device: str, **settings: Any) -> tuple[Decoder, Tokenizer]:
    """A model that has a tokenizer, by the settings of :func:`dl4all.llm.load`.

    Args:
        device: one, or several with commas between them.

    Raises:
        FileFormatError: it has none.
    """
    from dl4all.errors import FileFormatError
    from dl4all.llm import load

    network, tokenizer = load(model, **places(device), **settings)
    if tokenizer is None:
        raise FileFormatError(f"[llm] {model} has no tokenizer: text cannot become tokens")
    return network, tokenizer
