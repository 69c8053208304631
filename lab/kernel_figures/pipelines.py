"""Every shader with the constants that ops really give it on a device, read from what they launch.

The ops' examples, every candidate of the tuner and each algorithm of convolution run on a null device that is
described as the GPU is: nothing computes, and what would have been compiled is noted.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

import dl4all as dl
from dl4all.errors import Dl4allError
from dl4all.ops import all_shaders
from dl4all.ops.conv import algorithms
from dl4all.ops.conv.problem import Direction, Problem
from dl4all.ops.conv.window import Window
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.op import REGISTRY, Example, Op
from dl4all.ops.elementwise.declare import Elementwise
from dl4all.ops.linalg import gemm
from dl4all.runtime import spirv
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.null.backend import NullBackend
from dl4all.runtime.null.program import NullProgram
from dl4all.runtime.spirv import SpirvModule

DECLARED = "declared"
"""What uses a shader that nothing here launched: the device may never choose it."""

Work: TypeAlias = tuple[str, Callable[[], object]]
"""What is run, and a name for it."""

Layout: TypeAlias = Callable[[dl.Device, tuple[int, ...], np.dtype[Any]], dl.Tensor]
"""Makes a tensor of a shape and dtype."""

MEMORY = 2**40  # bytes that the null device pretends to have, where nothing is stored


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """A shader with the constants that something gives it."""

    module: SpirvModule
    constants: tuple[int, ...]
    used_by: str

    @property
    def name(self) -> str:
        return label(self.module.name, self.constants)

    @property
    def lanes(self) -> int:
        """Invocations of a workgroup."""
        interface = self.module.interface
        sides = zip(interface.local_size, interface.local_size_ids, strict=True)
        return prod(
            default if id is None or id >= len(self.constants) else self.constants[id]
            for default, id in sides
        )


def label(shader: str, constants: Sequence[int]) -> str:
    """A shader's name and constants.

    >>> label("linalg/gemm.comp -DSHARED=1", (0, 8))
    'linalg/gemm.comp SHARED=1 (0, 8)'
    """
    name = " ".join(shader.replace(" -D", " ").split())
    return f"{name} ({', '.join(map(str, constants))})" if constants else name


class Notes(NullBackend):
    """A null device that notes the programs that are asked of it, and for what."""

    def __init__(self, info: DeviceInfo, features: frozenset[str]) -> None:
        self.found: dict[str, Pipeline] = {}
        self.used_by = DECLARED
        super().__init__(info, features)

    def program(self, module: SpirvModule, constants: Sequence[int]) -> NullProgram:
        made = super().program(module, constants)
        pipeline = Pipeline(module, tuple(constants), self.used_by)
        self.found.setdefault(pipeline.name, pipeline)
        return made


def gather(info: DeviceInfo, features: frozenset[str]) -> list[Pipeline]:
    """All pipelines that a device of this description may build, those of the products first."""
    limits = dataclasses.replace(info.limits, allocation_size=MEMORY)
    notes = Notes(dataclasses.replace(info, memory=MEMORY, limits=limits), features)
    device = dl.Device.of_backend("null:0", notes)
    for used_by, work in works(device):
        notes.used_by = used_by
        with contextlib.suppress(Dl4allError):  # what a device cannot run is not compiled for it
            work()
    for shader in all_shaders():
        module = spirv.load(shader)
        if not any(pipeline.module.name == module.name for pipeline in notes.found.values()):
            notes.found.setdefault(label(module.name, ()), Pipeline(module, (), DECLARED))
    return list(notes.found.values())


def works(device: dl.Device) -> Iterator[Work]:
    """What launches kernels, the most particular first: the first that uses a pipeline names it."""
    with dl.fallback.policy("error"):  # or NumPy would compute what there is no kernel for
        yield from _products(device)
        yield from _convolutions(device)
        yield from _tuned(device)
        yield from _networks(device)
        yield from _examples(device)
        yield from _casts(device)
        yield from _random(device)
        yield from _optimizers(device)


def _products(device: dl.Device) -> Iterator[Work]:
    """Each tile, neither operand transposed, the left or the right one, with sizes that suit it and others.

    1024 is a multiple of a tile's sides, 1020 of a vector's length ("ragged"), 1023 of neither.
    """
    one = allocated(device, (1,))
    for (name, tile), (size, which), (left, right) in product(
        gemm.TILES.items(),
        ((1024, ""), (1020, " ragged"), (1023, " unaligned")),
        ((False, False), (True, False), (False, True)),
    ):
        problem = gemm.GemmProblem(
            size, size, size, lda=size, ldb=size, ldc=size, transpose_a=left, transpose_b=right
        )
        if gemm.SPACE.fits(device, tile, gemm.SPACE.key(problem)):
            case = f"{'TN'[not left]}{'TN'[not right]}{which}"
            yield f"gemm {name} {case}", partial(gemm.gemm_with_tile, tile, one, one, one, None, problem)


LAYERS: tuple[tuple[str, int, int, int, int, int, int, int], ...] = (
    # Name, channels, filters, groups, pixels along a side, kernel, stride, axes.
    ("3x3", 64, 64, 1, 56, 3, 1, 2),
    ("3x3 few channels", 3, 8, 1, 56, 3, 1, 2),
    ("3x3 one filter", 1, 4, 1, 28, 3, 1, 2),
    ("3x3 unaligned", 64, 64, 1, 55, 3, 1, 2),
    ("3x3 stride 2", 64, 128, 1, 56, 3, 2, 2),
    ("1x1", 64, 256, 1, 56, 1, 1, 2),
    ("1x1 stride 2", 64, 128, 1, 56, 1, 2, 2),
    ("5x5", 16, 32, 1, 28, 5, 1, 2),
    ("7x7 stride 2", 3, 64, 1, 224, 7, 2, 2),
    ("7x7", 16, 16, 1, 56, 7, 1, 2),
    ("3x3 groups", 64, 64, 4, 28, 3, 1, 2),
    ("3x3 depthwise", 64, 64, 64, 56, 3, 1, 2),
    ("7x7 depthwise", 64, 64, 64, 56, 7, 1, 2),
    ("11x11", 32, 32, 1, 56, 11, 1, 2),
    ("3 of one axis", 32, 32, 1, 128, 3, 1, 1),
    ("3x3x3", 16, 16, 1, 16, 3, 1, 3),
)
"""Convolutions as networks have them."""


def _convolutions(device: dl.Device) -> Iterator[Work]:
    """Each algorithm and direction with the layers that it supports."""
    for layer, algorithm, direction in product(LAYERS, algorithms.ALGORITHMS, get_args(Direction)):
        problem = _problem(*layer[1:])
        if algorithm.supports(device.info, problem, direction):
            operands = _operands(device, problem, direction)
            work = partial(getattr(algorithm, direction), *operands, problem)
            yield f"conv {algorithm.name} {layer[0]} {direction}", work


def _problem(
    channels: int, filters: int, groups: int, pixels: int, kernel: int, stride: int, axes: int
) -> Problem:
    def along(value: int, other: int) -> tuple[int, ...]:
        return (other,) * (3 - axes) + (value,) * axes

    padding = along(kernel // 2, 0)
    win = Window(along(kernel, 1), along(stride, 1), padding, padding, (1, 1, 1))
    out = (pixels + 2 * (kernel // 2) - kernel) // stride + 1
    return Problem(8, channels, filters, groups, along(pixels, 1), along(out, 1), win)


def _operands(device: dl.Device, problem: Problem, direction: str) -> list[Any]:
    """What is written, what is read and, forward, no bias."""
    x = allocated(device, (problem.images, problem.channels, *problem.size))
    w = allocated(device, (problem.filters, problem.channels // problem.groups, *problem.win.kernel))
    g = allocated(device, (problem.images, problem.filters, *problem.out_size))
    if direction == "forward":
        return [g, x, w, None]
    return [x, g, w] if direction == "input_gradient" else [w, g, x]


def _tuned(device: dl.Device) -> Iterator[Work]:
    """Every candidate of the tuner, with the problems that it measures."""
    for space in autotune.SPACES.values():
        for named, problem in space.problems:
            key = space.key(problem)
            fitting = [n for n, candidate in space.candidates.items() if space.fits(device, candidate, key)]
            prepared = space.prepare(device, problem)
            for name in fitting:
                run = partial(prepared.run, space.candidates[name])
                yield f"{space.name} {name}, {named}", run


def _networks(device: dl.Device) -> Iterator[Work]:
    """A step of training of networks whose ops have sizes that no example has."""
    convolutional = dl.nn.Sequential(
        dl.nn.Conv2d(3, 32, 3, padding=1), dl.nn.BatchNorm2d(32), dl.nn.ReLU(), dl.nn.MaxPool2d(2),
        dl.nn.Conv2d(32, 64, 3, padding=1), dl.nn.GroupNorm(8, 64), dl.nn.ReLU(), dl.nn.AdaptiveAvgPool2d(1),
        dl.nn.Flatten(), dl.nn.Linear(64, 1000),
    )  # fmt: skip
    transformer = dl.nn.TransformerEncoderLayer(128, 2, 512, batch_first=True)
    yield "network of convolutions", partial(_train, convolutional, (8, 3, 64, 64), device)
    yield "network transformer", partial(_train, transformer, (8, 64, 128), device)
    yield "network LSTM", partial(_train, dl.nn.LSTM(64, 128), (30, 24, 64), device)
    yield "network GRU", partial(_train, dl.nn.GRU(64, 128), (30, 24, 64), device)


def _train(network: dl.nn.Module, shape: Shape, device: dl.Device) -> None:
    result = network.to(device)(allocated(device, shape))
    scores = result[0] if isinstance(result, tuple) else result
    scores = scores.reshape(-1, scores.shape[-1])
    dl.nn.functional.cross_entropy(scores, dl.zeros(len(scores), dtype=dl.int64, device=device)).backward()


def _examples(device: dl.Device) -> Iterator[Work]:
    """The ops' examples, in the layouts and dtypes that kernels differ by."""
    for op in REGISTRY.values():
        for dtype in op.by_dtype if isinstance(op, Elementwise) else op.kernel.dtypes if op.kernel else ():
            for number, case in enumerate(op.examples):
                for layout in LAYOUTS if not number else LAYOUTS[:1]:
                    yield op.name, partial(_call, op, case, dtype, layout, device)


KEPT = ("float32", "float16", "int32", "uint8", "bool", "int64")  # dtypes that devices store


def _casts(device: dl.Device) -> Iterator[Work]:
    """From each dtype to each other one, and copies."""
    for source, target, layout in product(KEPT, KEPT, LAYOUTS):
        yield "cast", partial(_cast, source, target, layout, device)


def _cast(source: str, target: str, layout: Layout, device: dl.Device) -> None:
    tensor = layout(device, (5, 68), np.dtype(source))
    tensor.to(target).clone().contiguous()


def _random(device: dl.Device) -> Iterator[Work]:
    shape = (5, 68)
    for function in (dl.rand, dl.randn, dl.zeros, dl.ones):
        yield function.__name__, partial(function, shape, device=device)
    yield "bernoulli", lambda: dl.bernoulli(allocated(device, shape))


OPTIMIZERS: tuple[tuple[Callable[..., Any], dict[str, Any]], ...] = (
    (dl.optim.SGD, {}),
    (dl.optim.SGD, {"momentum": 0.9}),
    (dl.optim.Adadelta, {}),
    (dl.optim.Adagrad, {}),
    (dl.optim.Adam, {}),
    (dl.optim.Adam, {"amsgrad": True}),
    (dl.optim.Lion, {}),
    *((dl.optim.RMSprop, {"centered": c, "momentum": m}) for c, m in product((False, True), (0.0, 0.9))),
)


def _optimizers(device: dl.Device) -> Iterator[Work]:
    """A step for one parameter, and for a network's, which lie side by side."""
    for optimizer, arguments in OPTIMIZERS:
        for layers in (1, 8):  # the latter in one dispatch
            yield optimizer.__name__, partial(_step, optimizer, arguments, layers, device)


def _step(optimizer: Callable[..., Any], arguments: dict[str, Any], layers: int, device: dl.Device) -> None:
    network = dl.nn.Sequential(*(dl.nn.Linear(12, 12, bias=layers > 1) for _ in range(layers))).to(device)
    parameters = list(network.parameters())
    network(allocated(device, (4, 12))).sum().backward()
    dl.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer(parameters, lr=0.1, **arguments).step()
    average = dl.optim.EMA(parameters)
    average.update()


def _call(op: Op[...], case: Example, dtype: str, layout: Layout, device: dl.Device) -> None:
    operands = [
        None if shape is None else layout(device, shape, _dtype(op, name, np.dtype(dtype)))
        for name, shape in zip(op.arrays, case.shapes, strict=True)
    ]
    op(*operands, **dict(case.arguments))


def _dtype(op: Op[...], name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of an operand of an op that is to compute in `dtype`."""
    if not isinstance(op, Elementwise):
        return dtype
    if op.conditions[op.arrays.index(name)]:
        return np.dtype(bool)
    if dtype.kind == "f" and "f" not in op.kinds:
        return np.dtype(f"int{8 * dtype.itemsize}")
    return dtype


def allocated(device: dl.Device, shape: Sequence[int], dtype: npt.DTypeLike = "float32") -> dl.Tensor:
    """A contiguous tensor with undefined contents."""
    wanted = np.dtype(dtype)
    return dl.Tensor(device.allocate(wanted.itemsize * prod(shape)), tuple(shape), wanted, device)


Shape = tuple[int, ...]


def _transposed(device: dl.Device, shape: Shape, dtype: np.dtype[Any]) -> dl.Tensor:
    return allocated(device, shape[::-1], dtype).T


def _strided(device: dl.Device, shape: Shape, dtype: np.dtype[Any]) -> dl.Tensor:
    larger = allocated(device, [2 * size + 1 for size in shape], dtype)
    return larger[(..., *(slice(1, 2 * size + 1, 2) for size in shape))]


def _offset(device: dl.Device, shape: Shape, dtype: np.dtype[Any]) -> dl.Tensor:
    count = prod(shape)
    return allocated(device, (count + 5,), dtype)[3 : 3 + count].reshape(shape)


def _expanded(device: dl.Device, shape: Shape, dtype: np.dtype[Any]) -> dl.Tensor:
    return allocated(device, (1, *shape[1:]), dtype).expand(shape) if shape else allocated(device, (), dtype)


LAYOUTS: tuple[Layout, ...] = (allocated, _transposed, _strided, _offset, _expanded)
