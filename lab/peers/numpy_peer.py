"""NumPy on the processor, convolutions as one matrix product over copied neighbourhoods."""

from __future__ import annotations

import os

import numpy as np

from lab.peers.cases import Array, Case, product
from lab.peers.serve import Steps, serve


def prepare(case: Case, x: Array, w: Array) -> Steps:
    return Steps(lambda: x, lambda x: product(case, x, w), lambda y: y)


if __name__ == "__main__":
    serve(f"numpy {np.__version__}", f"processor ({os.cpu_count()} threads)", prepare)
