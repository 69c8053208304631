"""``dl4all parameter-server``: keeps parameters for processes that train without waiting for each other."""

from __future__ import annotations

import signal
import threading

import click


@click.command("parameter-server")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", default=29600, show_default=True, type=click.IntRange(0, 65535), help="0: any.")
@click.option("--folder", type=click.Path(file_okay=False), help="For checkpoints, from which it goes on.")
@click.option("--save-every", default=1000, show_default=True, type=click.IntRange(min=1), help="Steps.")
@click.option(
    "--limit-mb", default=4096, show_default=True, type=click.IntRange(min=1), help="Of parameters."
)
def parameter_server(host: str, port: int, folder: str | None, save_every: int, limit_mb: int) -> None:
    """Keep parameters, and make a step of the optimizer with each gradient that a client sends.

    A script uses it by dl.distributed.ParameterClient(["HOST:PORT", ...], net, optimizer="SGD", lr=0.1); with
    several servers each keeps a part. It computes on the CPU, and ends after SIGTERM or Ctrl-C, when it has
    written a checkpoint. Whoever reaches the port can change the parameters: use a network of your own.
    """
    from dl4all.training.parameter_server import ParameterServer

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ParameterServer(
        f"{host}:{port}", folder=folder, save_every=save_every, limit=limit_mb << 20
    ) as server:
        click.echo(f"parameters at {server.address}")
        stop.wait()
