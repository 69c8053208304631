"""Tokens of a language model of 100 million random weights, beside transformers and llama.cpp.

python benchmarks/language_models.py [--device cpu] [--folder DIR] [--cache 512] [--kind f32 --kind q4_0]

Prints the tokens a second of a prompt, and the milliseconds of a token: medians of interleaved runs on
the same files. Kinds are GGUF files, which llama.cpp reads, too, where llama-cpp-python is installed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
import transformers as hf

import dl4all as dl

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.turns import PAUSE

TOKENS = 24


def model_folder(folder: Path) -> Path:
    """The folder of a Llama of 12 layers of 768 features, which is made if it is not there."""
    if not (folder / "config.json").exists():
        torch.manual_seed(0)
        sizes: dict[str, Any] = {
            "vocab_size": 32000,
            "hidden_size": 768,
            "intermediate_size": 2048,
            "num_hidden_layers": 12,
        }
        heads: dict[str, Any] = {"num_attention_heads": 12, "num_key_value_heads": 4}
        config = hf.LlamaConfig(**sizes, **heads, max_position_embeddings=4096, tie_word_embeddings=True)
        hf.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def of_transformers(model: Any, prompt: list[int], length: int) -> tuple[float, float, list[int]]:
    """Seconds of the prompt and of a token, and the tokens."""
    with torch.inference_mode():
        cache = hf.StaticCache(config=model.config, max_cache_len=length)
        begun = time.perf_counter()
        token = model(torch.tensor([prompt]), cache=cache, use_cache=True).logits[:, -1:].argmax(-1)
        of_prompt, times, tokens = time.perf_counter() - begun, [], [int(token)]
        for number in range(TOKENS):
            begun = time.perf_counter()
            at = torch.tensor([len(prompt) + number])
            token = model(token, cache=cache, use_cache=True, cache_position=at).logits.argmax(-1)
            tokens.append(int(token))
            times.append(time.perf_counter() - begun)
    return of_prompt, statistics.median(times), tokens


def of_dl4all(model: dl.llm.Decoder, prompt: list[int], length: int) -> tuple[float, float, list[int]]:
    """The same."""
    times, tokens = [], []
    cache = model.make_cache(1, length)
    begun = time.perf_counter()
    for piece in dl.llm.stream_generate(model, None, prompt, TOKENS + 1, cache=cache):
        times.append(time.perf_counter() - begun)
        tokens.append(piece.token)
        begun = time.perf_counter()
    return times[0], statistics.median(times[1:]), tokens


def of_llama_cpp(llama: Any, prompt: list[int]) -> tuple[float, float, list[int]]:
    """The same, by llama.cpp's own loop of single calls."""
    llama.reset()
    begun = time.perf_counter()
    llama.eval(prompt)
    tokens = [int(np.argmax(llama._scores[-1]))]
    of_prompt, times = time.perf_counter() - begun, []
    for _ in range(TOKENS):
        begun = time.perf_counter()
        llama.eval(tokens[-1:])
        tokens.append(int(np.argmax(llama._scores[-1])))
        times.append(time.perf_counter() - begun)
    return of_prompt, statistics.median(times), tokens


def llama_cpp_of(path: Path, length: int, threads: int) -> Any:
    """The model in llama.cpp, or None where it is not installed."""
    try:
        from llama_cpp import Llama  # type: ignore[import-not-found]
    except ImportError:
        return None
    return Llama(
        str(path), n_ctx=length, n_batch=length, n_threads=threads, n_threads_batch=threads, verbose=False
    )


@click.command()
@click.option("--device", default="cpu", show_default=True)
@click.option("--folder", default=Path(tempfile.gettempdir(), "llm-100m"), type=click.Path(path_type=Path))
@click.option("--prompt", default=64, show_default=True, help="Tokens.")
@click.option("--cache", default=512, show_default=True, help="Tokens that there is room for.")
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--kind", "kinds", multiple=True, help="Of a GGUF file: f32, q8_0, q4_0; may be repeated.")
def main(
    device: str, folder: Path, prompt: int, cache: int, threads: int, rounds: int, kinds: tuple[str, ...]
) -> None:
    """Print all, and ratios to the first."""
    torch.set_num_threads(threads)
    model_folder(folder)
    theirs: Any = hf.LlamaForCausalLM.from_pretrained(folder)
    theirs.eval()
    ours, _ = dl.llm.load(folder, device=device)
    idx = np.random.default_rng(0).integers(3, 32000, prompt).tolist()
    runs: dict[str, Callable[[], tuple[float, float, list[int]]]] = {
        "transformers": lambda: of_transformers(theirs, idx, cache),
        "dl4all": lambda: of_dl4all(ours, idx, cache),
    }
    for kind in kinds:
        path = folder / f"{kind}.gguf"
        if not path.exists():
            dl.llm.save_gguf(dl.llm.load(folder, device="cpu")[0], None, path, kind)
        packed, _ = dl.llm.load(path, device=device)
        runs[f"dl4all {kind}"] = partial(of_dl4all, packed, idx, cache)
        if (llama := llama_cpp_of(path, cache, threads)) is not None:
            runs[f"llama.cpp {kind}"] = partial(of_llama_cpp, llama, idx)
    found: dict[str, list[tuple[float, float, list[int]]]] = {name: [] for name in runs}
    for run in runs.values():
        run()  # kernels are made, and steps compiled
    for _ in range(rounds):
        for name, run in runs.items():
            time.sleep(PAUSE)
            found[name].append(run())
    medians: dict[str, tuple[float, float]] = {}
    for name, results in found.items():
        of_prompt, of_token = (statistics.median(times) for times in list(zip(*results, strict=True))[:2])
        medians[name] = of_prompt, of_token
        first, own = medians["transformers"], medians[name]
        print(
            f"{name:15} prompt {prompt / of_prompt:6.0f} tokens/s, token {of_token * 1e3:6.2f} ms: "
            f"{own[0] / first[0]:.2f} and {own[1] / first[1]:.2f} of transformers' time"
        )
    same = found["dl4all"][0][2] == found["transformers"][0][2]
    print(f"the tokens are {'the same' if same else 'not the same'}")
    for kind in kinds:
        if (other := f"llama.cpp {kind}") in medians:
            own, first = medians[f"dl4all {kind}"], medians[other]
            print(f"{kind}: {own[0] / first[0]:.2f} and {own[1] / first[1]:.2f} of llama.cpp's time")


if __name__ == "__main__":
    main()
