"""Train a network on digits, serve it, and ask it over the network as any client would.

python examples/serve_digits.py
"""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import click
import numpy as np

import dl4all as dl
from dl4all.cli.run import run


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--device", default="auto", show_default=True, help="Where it trains and serves: cpu, vulkan:0, ..."
)
@click.option("--epochs", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Of HTTP; 0: any.")
@click.option("--compile", is_flag=True, help="Replay recorded training steps, and batches.")
def main(device: str, epochs: int, port: int, compile: bool) -> None:
    """Learn digits of 8 x 8 pixels, and read 359 others over HTTP."""
    dl.manual_seed(0)
    learned, held_out = dl.data.random_split(dl.data.digits(), (0.8, 0.2))
    net = dl.models.MLP(64, [128], 10)
    trainer = dl.Trainer(
        net,
        dl.nn.CrossEntropyLoss(),
        dl.optim.AdamW(net.parameters(), lr=0.003),
        device=device,
        compile=compile,
    )
    trainer.fit(dl.data.DataLoader(learned, 32, shuffle=True), epochs)

    server = dl.serving.Server(http_port=port, grpc_port=0, devices=[device])
    server.add(
        "digits",
        net,
        inputs=[{"name": "pixels", "datatype": "FP32", "shape": [-1, 1, 8, 8]}],
        outputs=[{"name": "scores", "datatype": "FP32", "shape": [-1, 10]}],
        compile=compile,
    )

    def read(sample: int) -> bool:
        """Whether the server reads a digit right."""
        pixels, digit = held_out[sample]
        tensor = {
            "name": "pixels",
            "datatype": "FP32",
            "shape": [1, 1, 8, 8],
            "data": np.ravel(pixels).tolist(),
        }
        request = json.dumps({"inputs": [tensor]}).encode()
        address = f"http://{server.http_url}/v2/models/digits/infer"
        with urllib.request.urlopen(address, request) as answer:
            scores = json.load(answer)["outputs"][0]["data"]
        return int(np.argmax(scores)) == int(digit)

    with server, ThreadPoolExecutor(8) as clients:
        right = list(clients.map(read, range(len(held_out))))
        (model,) = json.load(urllib.request.urlopen(f"http://{server.http_url}/v2/models/stats"))[
            "model_stats"
        ]
    rows = model["inference_count"] / model["execution_count"]
    print(f"{np.mean(right):.2%} of {len(right)} digits read right over HTTP, {rows:.1f} in a batch")


if __name__ == "__main__":
    run(main, "serve_digits.py")
