"""Kernels of layers give the same bits for any number of threads, whatever memory held."""

from __future__ import annotations

import pytest

from dl4all.runtime.cpu.llvm import provider
from tests.conftest import run_python

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")

PROGRAM = """
import hashlib
import numpy as np
import dl4all as dl

F = dl.nn.functional
rng = np.random.default_rng(4)
digest = hashlib.sha256()

def numbers(*shape):
    return dl.tensor(rng.standard_normal(shape).astype(np.float32), device="cpu").requires_grad_()

def note(result, *operands):
    result.backward(dl.tensor(rng.standard_normal(result.shape).astype(np.float32), device="cpu"))
    for tensor in (result.detach(), *(operand.grad for operand in operands)):
        digest.update(tensor.numpy().tobytes())
        dl.full(tensor.shape, np.nan, device="cpu")

images, rows, w, b = numbers(9, 66, 31, 29), numbers(3001, 130), numbers(66), numbers(66)
u, v, scores = numbers(130), numbers(130), numbers(40001, 7)
target = dl.tensor(rng.integers(0, 7, 40001), device="cpu")
note(F.batch_norm(images, None, None, w, b, training=True), images, w, b)
note(F.batch_norm(rows, None, None, u, v, training=True), rows, u, v)
note(F.layer_norm(rows, (130,), u, v), rows, u, v)
note(F.group_norm(images, 6, w, b), images, w, b)
for dim in (0, 1):
    note(F.softmax(rows, dim), rows)
    note(F.log_softmax(rows, dim), rows)
    note(dl.logsumexp(rows, dim), rows)
note(F.cross_entropy(scores, target), scores)
note(F.cross_entropy(scores, target, reduction="none", label_smoothing=0.1), scores)
for f in (F.max_pool2d, F.avg_pool2d):
    note(f(images, 3, 2, 1), images)
note(F.adaptive_avg_pool2d(images, (3, 5)), images)
dl.manual_seed(3)
note(F.dropout(rows, 0.3), rows)
print(digest.hexdigest())
"""


def test_any_number_of_threads_gives_the_same_bits() -> None:
    """Of normalisation, softmax, losses, pooling and dropout, whatever memory held."""
    digests = set()
    for threads in ("1", "2", "7"):
        ended = run_python(PROGRAM, DL4ALL_THREADS=threads)
        assert ended.returncode == 0, ended.stderr
        digests.add(ended.stdout)
    assert len(digests) == 1
