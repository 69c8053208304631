"""``dl4all chat``: a talk with a language model."""

from __future__ import annotations

import click

from dl4all.cli.llm.options import generation_options, loaded

COMMANDS = "/new begins anew, /exit ends"


@click.command()
@click.argument("model")
@generation_options
@click.option("--system", help="What the model is told before the talk.")
def chat(
    model: str,
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
    system: str | None,
) -> None:
    """Talk with MODEL: lines of standard input, and its answers.

    MODEL is a folder with config.json and safetensors files, a GGUF file, or a repository on Hugging Face's
    Hub. What was
    said stays computed from answer to answer.
    """
    import dl4all as dl
    from dl4all.errors import ArgumentError, FileFormatError

    network, tokenizer = loaded(model, device=device, dtype=dtype, adapter_path=adapter)
    if tokenizer.template is None:
        raise FileFormatError(f"[llm] {model} has no template of talks; dl4all generate takes a text")
    sampler = dl.llm.make_sampler(temp, top_p, min_p, top_k)
    begin = [] if system is None else [{"role": "system", "content": system}]
    messages, conversation = list(begin), dl.llm.Conversation(network, tokenizer)
    click.echo(f"{model} on {network.embed_tokens.weight.device}; {COMMANDS}", err=True)
    for number in range(1_000_000):
        try:
            line = click.prompt("", prompt_suffix="> ", err=True).strip()
        except click.Abort:  # the end of the input, or Ctrl-C
            click.echo(err=True)
            return
        if line == "/exit":
            return
        if line == "/new":
            messages = list(begin)
            continue
        messages.append({"role": "user", "content": line})
        answer = ""
        try:
            for piece in conversation.answer(
                messages, max_tokens, sampler=sampler, repetition_penalty=repetition_penalty,
                seed=None if seed is None else seed + number,
            ):  # fmt: skip
                answer += piece.text
                click.echo(piece.text, nl=False)
        except ArgumentError as error:  # such as a talk beyond the model's positions
            click.echo(f"{error}; {COMMANDS}", err=True)
            messages.pop()
            continue
        except KeyboardInterrupt:
            pass
        click.echo()
        messages.append({"role": "assistant", "content": answer})
