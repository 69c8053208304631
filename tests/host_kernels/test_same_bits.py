"""Kernels that share work between threads give the same bits for any number of them, whatever memory held."""

from __future__ import annotations

import pytest

from dl4all.runtime.cpu.llvm import provider
from tests.conftest import run_python

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")

PROGRAM = """
import hashlib
import numpy as np
import dl4all as dl

rng = np.random.default_rng(4)
numbers = lambda *shape: dl.tensor(rng.standard_normal(shape).astype(np.float32), device="cpu")
digest = hashlib.sha256()

def note(*tensors):
    for tensor in tensors:
        digest.update(tensor.numpy().tobytes())
        dl.full(tensor.shape, np.nan, device="cpu")

x, long, images = numbers(3001, 130), numbers(1000003), numbers(16, 5, 67, 61)
index = dl.tensor(rng.integers(0, 211, 3001), device="cpu")
for _ in range(3):
    for name in ("sum", "mean", "amax", "argmax"):
        f = getattr(dl, name)
        note(f(x, 0), f(x, 1), f(long), f(x.T, 0))
    note(images.sum((0, 2, 3)), images.sum(1), images.mean((1, 2)), dl.norm(long), dl.norm(x, dim=0))
    note(dl.ops.sum_to(x, (130,)), dl.prod(1 + x / 1000, 0))
    note(x.T.contiguous(), images.permute(0, 2, 3, 1).contiguous(), x.to("float16"), dl.cat([x, x[:, 1:]], 1))
    note(x[index], dl.index_add(numbers(211, 130), 0, index, x))
    note(dl.index_add(numbers(211, 1), 0, index, x[:, :1]))
    note(dl.scatter(x, 0, index.reshape(-1, 1), x[:, 1:2].contiguous()))

# Sequences long enough for several threads, and all parameters at once.
w, h, terms = numbers(4 * 130, 130) / 12, numbers(97, 130), numbers(5 * 97, 4 * 130)
how = {"mode": "lstm", "sizes": (97,) * 5}
for _ in range(3):
    result = dl.ops.recurrent_sequence(terms, h, w, h, **how)
    note(result, dl.ops.recurrent_sequence_backward(terms[:, :130].contiguous(), result, w, **how))
params = [numbers(*shape) for shape in ((300, 300), (7,), (), (1000, 65))]
for p in params:
    p.grad = numbers(*p.shape)
optimizer = dl.optim.Adam(params, lr=0.1)
for _ in range(3):
    note(dl.nn.utils.clip_grad_norm_(params, 0.5))
    optimizer.step()
    note(*params, *(p.grad for p in params))

# Layers, and their gradients.
F = dl.nn.functional

def leaf(*shape):
    return dl.tensor(rng.standard_normal(shape).astype(np.float32), device="cpu").requires_grad_()

def note_gradients(result, *operands):
    result.backward(dl.tensor(rng.standard_normal(result.shape).astype(np.float32), device="cpu"))
    for tensor in (result.detach(), *(operand.grad for operand in operands)):
        digest.update(tensor.numpy().tobytes())
        dl.full(tensor.shape, np.nan, device="cpu")

images, rows, w, b = leaf(9, 66, 31, 29), leaf(3001, 130), leaf(66), leaf(66)
u, v, scores = leaf(130), leaf(130), leaf(40001, 7)
target = dl.tensor(rng.integers(0, 7, 40001), device="cpu")
note_gradients(F.batch_norm(images, None, None, w, b, training=True), images, w, b)
note_gradients(F.batch_norm(rows, None, None, u, v, training=True), rows, u, v)
note_gradients(F.layer_norm(rows, (130,), u, v), rows, u, v)
note_gradients(F.group_norm(images, 6, w, b), images, w, b)
for dim in (0, 1):
    note_gradients(F.softmax(rows, dim), rows)
    note_gradients(F.log_softmax(rows, dim), rows)
    note_gradients(dl.logsumexp(rows, dim), rows)
note_gradients(F.cross_entropy(scores, target), scores)
note_gradients(F.cross_entropy(scores, target, reduction="none", label_smoothing=0.1), scores)
for f in (F.max_pool2d, F.avg_pool2d):
    note_gradients(f(images, 3, 2, 1), images)
note_gradients(F.adaptive_avg_pool2d(images, (3, 5)), images)
dl.manual_seed(3)
note_gradients(F.dropout(rows, 0.3), rows)
print(digest.hexdigest())
"""


def test_any_number_of_threads() -> None:
    """In one program, because compiling the kernels takes most of the time."""
    digests = set()
    for threads in ("1", "2", "7"):
        ended = run_python(PROGRAM, DL4ALL_THREADS=threads)
        assert ended.returncode == 0, ended.stderr
        digests.add(ended.stdout)
    assert len(digests) == 1
