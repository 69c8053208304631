"""``dl4all serve``: answers requests for the models of a folder, or for a language model."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Literal

import click


@click.command()
@click.argument("repository")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--http-port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0: any.")
@click.option("--grpc-port", default=8001, show_default=True, type=click.IntRange(0, 65535), help="0: any.")
@click.option(
    "--device", "devices", multiple=True, default=["auto"], help="One, several by repeating, or all."
)
@click.option(
    "--model-control-mode",
    type=click.Choice(["none", "explicit"]),
    default="none",
    show_default=True,
    help="explicit: clients may load new versions, and unload models.",
)
@click.option(
    "--drain-seconds",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.0, 3600.0),
    help="For how long to answer after SIGTERM, not ready any more, until proxies have found out.",
)
@click.option("--name", help="Of a language model; that of its folder, file or repository if not given.")
@click.option(
    "--slots", default=8, show_default=True, type=click.IntRange(min=1), help="Completions at once."
)
@click.option("--adapter", type=click.Path(exists=True, file_okay=False), help="Of a language model.")
def serve(
    repository: str,
    host: str,
    http_port: int,
    grpc_port: int,
    devices: tuple[str, ...],
    model_control_mode: Literal["none", "explicit"],
    drain_seconds: float,
    name: str | None,
    slots: int,
    adapter: str | None,
) -> None:
    """Serve the models in the folder REPOSITORY by the Open Inference Protocol (KServe v2).

    Each model is a folder NAME with config.toml and NAME/VERSION/ with model.py, model.onnx, or model.toml
    and model.safetensors. The highest version serves. After SIGTERM it is not ready any more, and ends when
    what is under way is answered.

    REPOSITORY may be a language model, too: a folder with config.json, a GGUF file, or a repository on
    Hugging Face's Hub. It answers as OpenAI's API does: /v1/chat/completions, /v1/completions, /v1/models.
    """
    from dl4all.serving.server import Server

    if not _is_loopback(host):
        click.echo(
            f"warning: whoever reaches {host} can ask the models, without TLS and without a password; put a "
            "proxy in front that has both",
            err=True,
        )
    speaks = is_language_model(Path(repository))
    if not speaks and not Path(repository).is_dir():
        raise click.BadParameter(f"{repository} does not exist, or is no folder", param_hint="REPOSITORY")
    server = Server(
        None if speaks else repository,
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        devices=devices,
        model_control_mode=model_control_mode,
        drain_seconds=drain_seconds,
    )
    if speaks:
        from dl4all.cli.llm.options import places
        from dl4all.llm import load

        if "all" in devices:
            raise click.BadParameter(
                "name a language model's devices, in the order in which layers fill them",
                param_hint="--device",
            )
        model, tokenizer = load(repository, **places(",".join(devices)), adapter_path=adapter)
        server.add_language_model(name or Path(repository).stem, model, tokenizer, slots=slots)
    server.run(lambda: click.echo(f"serving http://{server.http_url} grpc://{server.grpc_url}"))


def is_language_model(path: Path) -> bool:
    """Whether a folder, a file or the name of a repository is a language model.

    >>> [is_language_model(Path(name)) for name in ("model.gguf", "owner/name", "folder")]
    [True, True, False]
    """
    if path.is_dir():
        return (path / "config.json").is_file()
    return path.suffix == ".gguf" or (len(path.parts) == 2 and not path.is_absolute())


def _is_loopback(host: str) -> bool:
    """
    >>> _is_loopback("127.0.0.1"), _is_loopback("localhost"), _is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
