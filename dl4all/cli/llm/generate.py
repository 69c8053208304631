"""``dl4all generate``: text that follows a prompt."""

from __future__ import annotations

import sys
import time

import click

from dl4all.cli.llm.options import generation_options, loaded


@click.command()
@click.argument("model")
@click.argument("prompt")
@generation_options
@click.option("--raw", is_flag=True, help="Give the prompt as it is, without the model's template of talks.")
@click.option("--draft-model", help="A small model of the same vocabulary, which drafts tokens for MODEL.")
@click.option("--stop", multiple=True, help="A text before which the answer ends; may be repeated.")
def generate(
    model: str,
    prompt: str,
    device: str,
    adapter: str | None,
    dtype: str | None,
    max_tokens: int,
    temp: float,
    top_p: float,
    min_p: float,
    top_k: int,
    repetition_penalty: float,
    seed: int | None,
    raw: bool,
    draft_model: str | None,
    stop: tuple[str, ...],
) -> None:
    """Print what MODEL says after PROMPT; a PROMPT of - is read from standard input.

    MODEL is a folder with config.json and safetensors files, a GGUF file, or a repository on Hugging Face's
    Hub.
    """
    import dl4all as dl

    text = sys.stdin.read() if prompt == "-" else prompt
    network, tokenizer = loaded(model, device=device, dtype=dtype, adapter_path=adapter)
    given: str | list[int] = text
    if not raw and tokenizer.template is not None:
        given = tokenizer.encode(
            tokenizer.apply_chat_template([{"role": "user", "content": text}]), special=False
        )
    small = None if draft_model is None else dl.llm.load(draft_model, device=device)[0]
    sampler = dl.llm.make_sampler(temp, top_p, min_p, top_k)
    count, begun, first = 0, time.perf_counter(), 0.0
    pieces = dl.llm.stream_generate(
        network, tokenizer, given, max_tokens, sampler=sampler, stop=stop, seed=seed,
        repetition_penalty=repetition_penalty, draft_model=small,
    )  # fmt: skip
    for piece in pieces:
        first = first or time.perf_counter() - begun
        count += 1
        click.echo(piece.text, nl=False)
    seconds = time.perf_counter() - begun - first
    click.echo()
    rate = f", then {(count - 1) / seconds:.1f} tokens/s" if count > 1 else ""
    click.echo(f"{count} tokens; the first after {first:.2f} s{rate}", err=True)
