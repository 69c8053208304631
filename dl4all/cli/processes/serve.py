"""``dl4all serve``: answers requests for the models of a folder over HTTP and gRPC."""

from __future__ import annotations

import ipaddress
from typing import Literal

import click


@click.command()
@click.argument("repository", type=click.Path(exists=True, file_okay=False))
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
def serve(
    repository: str,
    host: str,
    http_port: int,
    grpc_port: int,
    devices: tuple[str, ...],
    model_control_mode: Literal["none", "explicit"],
    drain_seconds: float,
) -> None:
    """Serve the models in the folder REPOSITORY by the Open Inference Protocol (KServe v2).

    Each model is a folder NAME with config.toml and NAME/VERSION/ with model.py, model.onnx, or model.toml
    and model.safetensors. The highest version serves. After SIGTERM it is not ready any more, and ends when
    what is under way is answered.
    """
    from dl4all.serving.server import Server

    if not _is_loopback(host):
        click.echo(
            f"warning: whoever reaches {host} can ask the models, without TLS and without a password; put a "
            "proxy in front that has both",
            err=True,
        )
    server = Server(
        repository,
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        devices=devices,
        model_control_mode=model_control_mode,
        drain_seconds=drain_seconds,
    )
    server.run(lambda: click.echo(f"serving http://{server.http_url} grpc://{server.grpc_url}"))


def _is_loopback(host: str) -> bool:
    """
    >>> _is_loopback("127.0.0.1"), _is_loopback("localhost"), _is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
