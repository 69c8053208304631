"""Training steps by tinygrad on its WEBGPU device: forward, backward and SGD in one TinyJit.

    {"do": "prepare", "case": name, "file": path}  ->  {}
    {"do": "step"}                                 ->  {"seconds": s, "loss": l}

The file is an ``.npz`` of the weights by PyTorch's names, and the batch as ``input`` and ``target``. Batch
norms do not keep track of their statistics, which saves tinygrad some work.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np

from lab.peers.serve import wanted_device
from lab.peers.tinygrad_peer import adapter, load

HEADS = 4
Weights = dict[str, Any]


def mlp(w: Weights, x: Any) -> Any:
    for layer in (0, 2):
        x = x.linear(w[f"{layer}.weight"].T, w[f"{layer}.bias"]).relu()
    return x.linear(w["4.weight"].T, w["4.bias"])


def cnn(w: Weights, x: Any) -> Any:
    for layer in (0, 3):
        x = x.conv2d(w[f"{layer}.weight"], w[f"{layer}.bias"], padding=1).relu().max_pool2d((2, 2))
    return x.flatten(1).linear(w["7.weight"].T, w["7.bias"])


def resnet18(w: Weights, x: Any) -> Any:
    def norm(name: str, x: Any) -> Any:
        mean = x.mean((0, 2, 3))
        spread = ((x - mean.reshape(1, -1, 1, 1)) ** 2).mean((0, 2, 3))
        return x.batchnorm(w[f"{name}.weight"], w[f"{name}.bias"], mean, (spread + 1e-5).rsqrt())

    x = x.conv2d(w["conv1.weight"], stride=2, padding=3)
    x = norm("bn1", x).relu().max_pool2d((3, 3), stride=2, padding=1)
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            name, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            y = norm(f"{name}.bn1", x.conv2d(w[f"{name}.conv1.weight"], stride=stride, padding=1)).relu()
            y = norm(f"{name}.bn2", y.conv2d(w[f"{name}.conv2.weight"], padding=1))
            if stride == 2:
                x = norm(f"{name}.downsample.1", x.conv2d(w[f"{name}.downsample.0.weight"], stride=2))
            x = (x + y).relu()
    return x.mean((2, 3)).linear(w["fc.weight"].T, w["fc.bias"])


def gpt(w: Weights, tokens: Any) -> Any:
    def linear(name: str, x: Any) -> Any:
        return x.linear(w[f"{name}.weight"].T, w[f"{name}.bias"])

    def norm(name: str, x: Any) -> Any:
        return x.layernorm() * w[f"{name}.weight"] + w[f"{name}.bias"]

    count, steps = tokens.shape
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:steps]
    for layer in range(sum(name.endswith("ln_1.weight") for name in w)):
        block = f"transformer.h.{layer}"
        parts = linear(f"{block}.attn.c_attn", norm(f"{block}.ln_1", x)).chunk(3, -1)
        q, k, v = (part.reshape(count, steps, HEADS, -1).transpose(1, 2) for part in parts)
        y = q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(count, steps, -1)
        x = x + linear(f"{block}.attn.c_proj", y)
        x = x + linear(f"{block}.mlp.c_proj", linear(f"{block}.mlp.c_fc", norm(f"{block}.ln_2", x)).gelu())
    scores = norm("transformer.ln_f", x).linear(w["transformer.wte.weight"].T)
    return scores.reshape(count * steps, -1)


NETWORKS: dict[str, Callable[[Weights, Any], Any]] = {
    "mlp": mlp, "cnn": cnn, "resnet18": resnet18, "gpt": gpt,
}  # fmt: skip


def trained(tinygrad: Any, device: Any, case: str, file: str) -> Callable[[], float]:
    """A function that takes a step and returns its loss."""
    optim, context = import_module("tinygrad.nn.optim"), import_module("tinygrad.helpers").Context
    with np.load(file) as arrays:
        tensors = {name: tinygrad.Tensor(array, device="WEBGPU").realize() for name, array in arrays.items()}
    x, y = tensors.pop("input"), tensors.pop("target")
    tensors.pop("lm_head.weight", None)  # the embedding's table once more
    weights = {name: t for name, t in tensors.items() if name.endswith(("weight", "bias"))}
    optimizer = optim.SGD(list(weights.values()), lr=0.01, momentum=0.9)
    network = NETWORKS[case]

    @tinygrad.TinyJit  # type: ignore[untyped-decorator]
    def step() -> Any:
        optimizer.zero_grad()
        loss = network(weights, x).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    def run() -> float:
        with context(TRAINING=1):
            loss = step()
        device.synchronize()
        return float(loss.item())

    return run


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints must not come between the answers
    tinygrad = load()
    device = tinygrad.Device["WEBGPU"]
    step: Callable[[], float] | None = None

    def answer(question: dict[str, Any]) -> dict[str, object]:
        nonlocal step
        if question["do"] == "prepare":
            step = trained(tinygrad, device, question["case"], question["file"])
            return {}
        assert step is not None
        start = time.perf_counter()
        loss = step()
        return {"seconds": time.perf_counter() - start, "loss": loss}

    about = {"about": f"tinygrad {version('tinygrad')}", "device": wanted_device([adapter(device)])}
    print(json.dumps(about), file=answers, flush=True)
    for line in sys.stdin:
        try:
            said = answer(json.loads(line))
        except Exception as problem:  # noqa: BLE001  any failure of a foreign library is a row of the table
            said = {"failed": f"{type(problem).__name__}: {problem}"}
        print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    main()
