"""PyTorch on the processor, with as many threads as it takes by itself."""

from __future__ import annotations

import torch

from lab.peers.cases import Array, Case
from lab.peers.serve import Steps, serve


def prepare(case: Case, x: Array, w: Array) -> Steps:
    weights = torch.from_numpy(w)

    def compute(given: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            if case.is_convolution:
                return torch.nn.functional.conv2d(given, weights, padding=1, stride=case.stride)
            return given @ weights

    return Steps(lambda: torch.from_numpy(x), compute, torch.Tensor.numpy)


if __name__ == "__main__":
    serve(f"torch {torch.__version__}", f"processor ({torch.get_num_threads()} threads)", prepare)
