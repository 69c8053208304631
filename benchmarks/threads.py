"""How many threads a benchmark uses, for dl4all, NumPy's BLAS and PyTorch alike."""

from __future__ import annotations

import os
import sys

import torch

VARIABLES = ("DL4ALL_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def hold(count: int | None) -> int:
    """Hold all libraries to a number of threads, and return it.

    BLAS reads its variables when NumPy is imported, so the program starts anew where they say something else.
    Without a number, it is what OMP_NUM_THREADS says, or one for each core, and nothing starts anew.
    """
    if count is None:
        count = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
    elif any(os.environ.get(name) != str(count) for name in VARIABLES):
        os.environ.update(dict.fromkeys(VARIABLES, str(count)))
        sys.stdout.flush()
        os.execv(sys.executable, sys.orig_argv)
    torch.set_num_threads(count)
    return count
