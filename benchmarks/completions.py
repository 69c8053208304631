"""Tokens a second of a served language model, for one client and for several at once.

python benchmarks/completions.py [--device cpu] [--kind f32] [--clients 8] [--tokens 64]

The model is that of benchmarks/language_models.py; clients ask over HTTP, each for its own prompt. Prints
medians of interleaved rounds, and their ratio.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import numpy as np

import dl4all as dl

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.language_models import model_folder
from benchmarks.turns import PAUSE


def ask(url: str, prompt: list[int], tokens: int) -> int:
    """The tokens of an answer, which is read whole."""
    body = {"model": "model", "prompt": prompt, "max_tokens": tokens, "temperature": 0}
    request = urllib.request.Request(
        f"http://{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return int(json.load(answer)["usage"]["completion_tokens"])


@click.command()
@click.option("--device", default="cpu", show_default=True)
@click.option("--kind", default="f32", show_default=True, help="Of its weights: f32, q8_0, q4_0.")
@click.option("--folder", default=Path(tempfile.gettempdir(), "llm-100m"), type=click.Path(path_type=Path))
@click.option("--clients", default=8, show_default=True)
@click.option("--prompt", default=32, show_default=True, help="Tokens.")
@click.option("--tokens", default=64, show_default=True, help="Of each answer.")
@click.option("--rounds", default=3, show_default=True)
def main(device: str, kind: str, folder: Path, clients: int, prompt: int, tokens: int, rounds: int) -> None:
    """Print both rates, and their ratio."""
    path = model_folder(folder) / f"{kind}.gguf"
    if not path.exists():
        dl.llm.save_gguf(dl.llm.load(folder, device="cpu")[0], None, path, kind)
    model, tokenizer = dl.llm.load(path, device=device)
    server = dl.serving.Server(http_port=0, grpc_port=0, devices=[device])
    server.add_language_model("model", model, tokenizer, slots=clients)
    rng = np.random.default_rng(0)
    rates: dict[int, list[float]] = {1: [], clients: []}
    with server, ThreadPoolExecutor(clients) as pool:
        for number in range(rounds + 1):
            for count, found in rates.items():
                prompts = [rng.integers(3, 32000, prompt).tolist() for _ in range(count)]
                time.sleep(PAUSE)
                begun = time.perf_counter()
                told = sum(pool.map(lambda one: ask(server.http_url, one, tokens), prompts))
                if number:  # kernels are made in the first round, and steps traced
                    found.append(told / (time.perf_counter() - begun))
    one, several = (statistics.median(found) for found in rates.values())
    print(f"{kind} on {device}: one {one:.0f} tokens/s, {clients} at once {several:.0f}: {several / one:.2f}")


if __name__ == "__main__":
    main()
