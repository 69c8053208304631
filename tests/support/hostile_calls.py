"""Every public function, called with numbers that cannot be: sizes, counts, steps and axes out of all bounds.

A function's first call is a harmless one, found by trying small operands. Then each of its numbers is
replaced by hostile ones, or its tensors by views that repeat elements without end. Devices must agree: on the
result, or on the class of a typed error.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import math
import random
import resource
import signal
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dl4all as dl
from dl4all.errors import Dl4allError
from dl4all.ops.core.dtypes import kind_of

INTS = (-1, 0, 2**31, 2**32 + 1, 2**40, 2**62, 2**63, 2**64 + 1, -(2**63) - 1)
WRONG_KIND = (2.5, math.nan)  # for ints
FLOATS = (math.nan, math.inf, -math.inf, 1e30, -1e30, 2**1024)
REPEATS = (2**32 + 1, 2**40)
SECONDS = 4
"""What no call may exceed."""
MEMORY = 1 << 30
"""What calls may take beyond what the process has before the first one, in bytes."""
MOST_COMPARED = 1 << 20
"""Elements of a result that is compared; of larger ones, which are views, only the shape is."""

SHAPES = ((4,), (3, 4), (2, 3, 4), (2, 3, 5, 5), (1, 2, 3, 4, 4), (4, 4), (), (1, 1, 1))
TENSORS = ("Array", "T", "Tensor", "TensorBase")
OTHER = {
    "broadcast", "checkpoint", "data_parallel", "pipeline", "device", "devices", "numerical_gradient", "cpu",
    "backward", "set_printoptions", "register_hook", "share_memory_", "fan_in_and_out", "Tensor.as_strided",
}  # fmt: skip
"""Functions that print, open devices, change settings, take functions, or copy only on some devices."""


class Operand(NamedTuple):
    """A tensor argument, made on the device of the call; its first axis may be repeated."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    repeats: int = 0

    def on(self, device: str, leaves: list[Any] | None = None) -> Any:
        """The tensor; where elements repeat, what repeats is a leaf with a gradient."""
        shape = (1, *self.shape[1:]) if self.repeats else self.shape
        values: Any = np.arange(math.prod(shape)).reshape(shape) % 3
        if self.dtype == "float32":
            values = values * 0.25 + 0.5
        made = dl.tensor(values.astype(self.dtype), device=device)
        if not self.repeats:
            return made
        if leaves is not None and kind_of(made.dtype) == "f":
            leaves.append(made.requires_grad_())
        return made.expand(self.repeats, *self.shape[1:])


class Function(NamedTuple):
    """A public function and its name."""

    name: str
    call: Callable[..., Any]

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        try:
            found = inspect.signature(self.call).parameters
            return {name: p for name, p in found.items() if p.kind is not p.VAR_KEYWORD}
        except ValueError:
            return {}


Arguments = dict[str, Any]

X, VECTOR, IMAGES = Operand((3, 4)), Operand((4,)), Operand((1, 2, 4, 4))
CALLS: dict[str, Arguments] = {
    "addbmm": {"input": X, "batch1": Operand((2, 3, 5)), "batch2": Operand((2, 5, 4))},
    **{name: {"tensors": (X, X)} for name in ("concat", "hstack", "vstack", "dstack", "column_stack")},
    **{name: {"tensors": X} for name in ("atleast_1d", "atleast_3d", "block_diag", "broadcast_tensors")},
    **{name: {"tensors": VECTOR} for name in ("meshgrid", "cartesian_prod")},
    "chain_matmul": {"matrices": X},
    "mv": {"input": X, "vec": VECTOR},
    "clamp": {"input": X, "min": 0.5, "max": 1},
    "clip": {"input": X, "min": 0.5, "max": 1},
    "threshold_": {"input": X, "threshold": 0.6, "value": 2.0},
    "grid_sample": {"input": IMAGES, "grid": Operand((1, 3, 3, 2))},
    "addmv": {"input": Operand((3,)), "mat": X, "vec": VECTOR},
    "cat": {"tensors": (X, X)},
    "stack": {"tensors": (X, X)},
    "diagonal_scatter": {"input": X, "src": Operand((3,))},
    "select_scatter": {"input": X, "src": VECTOR, "dim": 0, "index": 1},
    "slice_scatter": {"input": X, "src": X},
    "index_fill": {"input": X, "dim": 0, "index": Operand((2,), "int64"), "value": 1.0},
    "index_put": {"input": X, "indices": (Operand((2,), "int64"),), "values": Operand((2, 4))},
    "index_reduce": {
        "input": X, "dim": 0, "index": Operand((2,), "int64"), "source": Operand((2, 4)), "reduce": "mean",
    },
    **{
        f"Lazy{name}{axes}d": {"out_channels": 2, "kernel_size": 1}
        for name in ("Conv", "ConvTranspose") for axes in (1, 2, 3)
    },
    "scatter_reduce": {
        "input": X, "dim": 0, "index": Operand((2, 2), "int64"), "src": Operand((2, 2)), "reduce": "sum",
    },
    "normal": {"size": (2, 3)},
    "randint": {"low": 1, "high": 5, "size": (2, 3)},
    "sum_to_size": {"self": X, "size": (1, 4)},
    "affine_grid": {"theta": Operand((2, 2, 3)), "size": (2, 1, 3, 3)},
    "batch_norm": {"input": X, "training": True},
    "conv1d": {"input": Operand((1, 2, 4)), "weight": Operand((2, 2, 1))},
    "conv2d": {"input": IMAGES, "weight": Operand((2, 2, 1, 1))},
    "conv3d": {"input": Operand((1, 2, 3, 4, 4)), "weight": Operand((2, 2, 1, 1, 1))},
    "conv_transpose1d": {"input": Operand((1, 2, 4)), "weight": Operand((2, 2, 1))},
    "conv_transpose2d": {"input": IMAGES, "weight": Operand((2, 2, 1, 1))},
    "conv_transpose3d": {"input": Operand((1, 2, 3, 4, 4)), "weight": Operand((2, 2, 1, 1, 1))},
    "cosine_embedding_loss": {"input1": X, "input2": X, "target": Operand((3,))},
    "ctc_loss": {
        "log_probs": Operand((5, 2, 4)), "targets": Operand((2, 1), "int64"), "input_lengths": (5, 5),
        "target_lengths": (1, 1),
    },
    "interpolate": {"input": IMAGES, "size": (3, 5)},
    "upsample": {"input": IMAGES, "scale_factor": 2.0},
    "upsample_nearest": {"input": IMAGES, "scale_factor": 2.0},
    "upsample_bilinear": {"input": IMAGES, "size": 3},
    "multi_margin_loss": {"input": X, "target": Operand((3,), "int64")},
    "nll_loss": {"input": X, "target": Operand((3,), "int64")},
    "cross_entropy": {"input": X, "target": Operand((3,), "int64")},
    "embedding": {"input": Operand((3,), "int64"), "weight": X},
    "gather": {"input": X, "dim": 0, "index": Operand((2, 2), "int64")},
    "index_select": {"input": X, "dim": 0, "index": Operand((2,), "int64")},
    "calculate_gain": {"nonlinearity": "leaky_relu", "param": 0.1},
    "Linear": {"in_features": 3, "out_features": 4},
    "Bilinear": {"in1_features": 3, "in2_features": 2, "out_features": 4},
    "MultiheadAttention": {"embed_dim": 4, "num_heads": 2},
    "Embedding": {"num_embeddings": 3, "embedding_dim": 4},
}  # fmt: skip
"""Calls that trying does not find, or not with operands that are worth it; by name, in every namespace."""


def functions() -> Iterator[Function]:
    """What ``dl``, ``nn.functional`` and tensors have, layers, optimizers and the data loader, by name."""
    spaces = (
        (dl, "dl."), (dl.nn.functional, "F."), (dl.Tensor, "Tensor."), (dl.nn.init, "init."), (dl.nn, "nn."),
    )  # fmt: skip
    for space, prefix in spaces:
        for name in sorted(dir(space)):
            call = getattr(space, name, None)  # some names are there to say why there is nothing
            layer = inspect.isclass(call) and prefix == "nn." and issubclass(call, dl.nn.Module)
            if name.startswith("_") or {name, prefix + name} & OTHER or not callable(call):
                continue
            if prefix == "init." and call.__module__ != dl.nn.init.__name__:
                continue
            if layer or not inspect.isclass(call):
                yield Function(prefix + name, _like_its_function(name, call))
    for name in sorted(dl.optim.__all__):
        call = getattr(dl.optim, name)
        # ZeroRedundancyOptimizer takes one of the others, and a group of processes
        if call in (dl.optim.Optimizer, dl.optim.ZeroRedundancyOptimizer):
            continue
        if inspect.isclass(call) and issubclass(call, dl.optim.Optimizer):
            yield Function(f"optim.{name}", _step(call))
    yield Function("data.DataLoader", _batches)


def _like_its_function(name: str, call: Any) -> Any:
    """A method that writes into its tensor, with the signature of the function that it is made of."""
    function = getattr(dl.ops, name[:-1], None) if name.endswith("_") else None
    if function is None or list(inspect.signature(call).parameters)[1:] != ["args", "kwargs"]:
        return call

    def method(*args: Any, **kwargs: Any) -> Any:
        first = next(iter(inspect.signature(function).parameters))
        return call(*([kwargs.pop(first)] if first in kwargs else []), *args, **kwargs)

    method.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return method


def _step(optimizer: Any) -> Callable[..., Any]:
    """A function that makes an optimizer with some options, and takes a step with it."""

    def step(parameter: Any, **options: Any) -> Any:
        x = dl.nn.Parameter(parameter)
        made = optimizer([x], **options)
        (x * x).sum().backward()
        made.step()
        return x.detach()

    signature = inspect.signature(optimizer)
    first = inspect.Parameter("parameter", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Tensor")
    options = list(signature.parameters.values())[1:]
    step.__signature__ = signature.replace(parameters=[first, *options])  # type: ignore[attr-defined]
    return step


def _batches(batch_size: int = 1, num_workers: int = 0, prefetch: int = 2, seed: int | None = None) -> Any:
    """The first batch of a small data set; with no more threads than there should be."""
    if isinstance(num_workers, int) and num_workers > 4:
        num_workers = 1
    loader = dl.data.DataLoader(
        dl.data.TensorDataset(np.arange(6.0)),
        batch_size,
        True,
        num_workers=num_workers,
        prefetch=prefetch,
        seed=seed,
        device=None,
    )
    return next(iter(loader))[0]


def kind(parameter: inspect.Parameter) -> str:
    """What a parameter takes, by its annotation: "tensor", "int", "ints", "float" or ""."""
    annotation = parameter.annotation
    words = [
        word.strip() for word in str(getattr(annotation, "__name__", annotation)).strip("'\"").split("|")
    ]
    if parameter.name == "self" or words[0] in TENSORS:
        return "tensor"
    if annotation is inspect.Parameter.empty and parameter.default is inspect.Parameter.empty:
        return "tensor"
    if any(
        word in ("Sequence[int]", "Shape", "Size", "Sizes", "OutputSize", "OutputSizes", "Dims")
        for word in words
    ):
        return "ints"
    if "int" in words:
        return "int"
    if any(word in ("float", "Scalar", "Number") for word in words):
        return "float"
    return ""


def harmless(function: Function) -> Arguments | None:
    """Arguments of a call that succeeds on the CPU; None if none are found."""
    parameters = function.parameters
    name = function.name.split(".")[-1]
    given = CALLS.get(name, CALLS.get(name.rstrip("_")))
    if given is not None:
        first = next(iter(parameters), "")
        self_named = {("self" if k == "input" and first == "self" else k): v for k, v in given.items()}
        return self_named if attempt(function, self_named) else None
    required = {
        name: "ints" if p.kind is p.VAR_POSITIONAL else kind(p)
        for name, p in parameters.items()
        if p.default is p.empty
    }
    for dtype, shape, n, count in itertools.product(
        ("float32", "int64", "bool"), SHAPES, (1, 2, 0), (0, 1, 2, 3)
    ):
        found: Arguments = {}
        for name, what in required.items():
            if what == "tensor":
                found[name] = Operand(shape, dtype)
            elif what == "ints":
                found[name] = (n,) * count if count else n
            elif what:
                found[name] = n if what == "int" else 0.5 * n
        if attempt(function, found):
            return found
        if not required:
            break
    return None


def attempt(function: Function, arguments: Arguments) -> bool:
    """Whether a call succeeds on the CPU."""
    try:
        run(function, arguments, "cpu")
    except (Dl4allError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError):
        return False
    return True


def run(function: Function, arguments: Arguments, device: str, leaves: list[Any] | None = None) -> Any:
    """The result of a call."""
    dl.manual_seed(5)
    parameters = function.parameters
    variadic = next((name for name, p in parameters.items() if p.kind is p.VAR_POSITIONAL), None)
    positional: list[Any] = []
    named: Arguments = {}
    for name, value in arguments.items():
        here = _on(value, device, leaves)
        before = variadic is not None and parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        if before or name == variadic or parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY:
            positional.append(here)
        else:
            named[name] = here
    if "device" in parameters and str(parameters["device"].annotation).startswith("DeviceLike"):
        named["device"] = device
    return function.call(*positional, **named)


def _on(value: Any, device: str, leaves: list[Any] | None) -> Any:
    if isinstance(value, Operand):
        return value.on(device, leaves)
    return tuple(_on(part, device, leaves) for part in value) if isinstance(value, tuple) else value


def gradients(result: Any, leaves: Sequence[Any]) -> list[Any]:
    """The gradients of what repeats, of the sum of a function's results."""
    parts = list(result[:4]) if isinstance(result, (tuple, list)) else [result]
    for part in parts:
        if isinstance(part, dl.Tensor) and part.requires_grad and part.grad_fn is not None:
            part.sum().backward(retain_graph=True)
    return [leaf.grad for leaf in leaves]


def cases(function: Function, arguments: Arguments) -> Iterator[Arguments]:
    """The arguments with hostile numbers, one at a time, and with views that repeat elements."""
    for name, parameter in function.parameters.items():
        what = kind(parameter)
        present = arguments.get(name)
        if what == "float":
            yield from ({**arguments, name: value} for value in FLOATS)
        elif what in ("int", "ints"):
            yield from ({**arguments, name: value} for value in (*INTS, *WRONG_KIND))
        if what == "ints" or (what == "int" and isinstance(present, tuple)):
            length = len(present) if isinstance(present, tuple) else 2
            rest = present[1:] if isinstance(present, tuple) else (1,)
            for value in (*INTS, *WRONG_KIND):
                yield {**arguments, name: (value,) * max(length, 1)}
                if length > 1:
                    yield {**arguments, name: (value, *rest)}
                    yield {**arguments, name: (0, *(value,) * (length - 1))}
    if any(isinstance(value, Operand) and value.shape for value in arguments.values()):
        for repeats in REPEATS:
            yield {name: _repeated(value, repeats) for name, value in arguments.items()}


def _repeated(value: Any, repeats: int) -> Any:
    return value._replace(repeats=repeats) if isinstance(value, Operand) and value.shape else value


def outcome(function: Function, arguments: Arguments, device: str) -> tuple[str, Any]:
    """The class of the error and its message, or "" and the result as arrays."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        leaves: list[Any] = []
        made = run(function, arguments, device, leaves)
        result = arrays([made, gradients(made, leaves)] if leaves else made)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Exception as error:  # noqa: BLE001  (any class is told)
        signal.setitimer(signal.ITIMER_REAL, 0)
        raw = "" if isinstance(error, Dl4allError) else "raw "
        return f"{raw}{type(error).__name__}", str(error)
    return "", result


def arrays(result: Any) -> Any:
    """The tensors in a result as arrays."""
    if isinstance(result, dl.Tensor):
        return result.detach().numpy() if result.numel() < MOST_COMPARED else result.shape
    if isinstance(result, (tuple, list)):
        return [arrays(part) for part in result[:64]]
    return result if isinstance(result, (int, float, str, bool)) else type(result).__name__


def same(one: Any, other: Any) -> bool:
    """Whether two results are equal, up to rounding."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        if kind_of(one.dtype) != "f":
            return bool((one == other).all())
        finite = np.isfinite(one)  # what infinities become is the subject of other tests
        return bool(np.allclose(one[finite], other[finite], rtol=1e-4, atol=1e-5))
    if isinstance(one, float) and isinstance(other, float):
        return not math.isfinite(one) or math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-5)
    return bool(one == other)


def faults(function: Function, devices: Sequence[str], chosen: Sequence[Arguments]) -> Iterator[str]:
    """What is wrong with calls of a function, in words."""
    for arguments in chosen:
        shown = f"{function.name}({', '.join(f'{k}={_short(v)}' for k, v in arguments.items())})"
        first: tuple[str, Any] = "", None
        for device in devices:
            error, result = outcome(function, arguments, device)
            if error.startswith("raw"):
                yield f"{shown} on {device}: {error}: {result}"
            if device == devices[0]:
                first = error, result
            elif error != first[0]:
                words = [f"{e or 'no error'} ({_short(r)})" for e, r in (first, (error, result))]
                yield f"{shown}: {words[0]} on {devices[0]}, {words[1]} on {device}"
            elif not error and "empty" not in function.name and not same(first[1], result):
                yield f"{shown}: {_short(first[1])} on {devices[0]}, {_short(result)} on {device}"


def _short(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 2**80:
        return f"2**{value.bit_length() - 1}"
    return (
        str(value)[:150]
        if not isinstance(value, Operand)
        else f"<{value.shape} {value.dtype} x{value.repeats}>"
    )


def limit_memory() -> None:
    """Let allocations fail that are larger than any call here should make."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    [data] = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData")]
    resource.setrlimit(resource.RLIMIT_DATA, (data + MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def main(devices: Sequence[str], most: int, share: float) -> None:
    """Print what is wrong.

    Args:
        devices: the first one is the reference.
        most: the cases of each function, drawn by its name; 0 for all.
        share: of the functions, drawn by their names.
    """
    logging.disable(logging.WARNING)
    for device in devices:
        dl.ones(4, device=device).matmul(dl.ones(4, device=device)).item()
    limit_memory()
    tried = 0
    for function in functions():
        draw = random.Random(zlib.crc32(function.name.encode()))
        if draw.random() >= share:
            continue
        arguments = harmless(function)
        if arguments is None:
            print("no call of", function.name)
            continue
        print("at", function.name, flush=True)
        found = list(cases(function, arguments))
        chosen = draw.sample(found, most) if 0 < most < len(found) else found
        for fault in faults(function, devices, chosen):
            print("fault:", fault.replace("\n", " "), flush=True)
        tried += len(chosen)
    print("tried", tried)


if __name__ == "__main__":
    main(sys.argv[1].split(","), int(sys.argv[2]), float(sys.argv[3]))
