"""What runs on the CPU for want of a kernel: its result, its row in the report, and the policy about it."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import (
    ArgumentError,
    ConfigError,
    DeviceError,
    DeviceLostError,
    FallbackError,
    OutOfMemoryError,
    PipelineError,
    ShaderError,
)
from dl4all.ops.core.op import Example, Op
from dl4all.runtime.kompute.library import typed
from dl4all.runtime.null.faults import FaultyBackend
from dl4all.runtime.profiler.trace import trace
from dl4all.runtime.protocols import Program
from dl4all.runtime.spirv import Shader, SpirvModule
from dl4all.runtime.vulkan import program as vulkan_program
from dl4all.runtime.vulkan.instance import api
from dl4all.scheduler import fallback
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch, Programs
from tests.conftest import need
from tests.ops.test_too_large import results
from tests.support.operands import LAYOUTS, compare, operands_of, reference
from tests.support.subcases import each_example

REFUSAL = ShaderError("[driver] internal compiler error 42")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """No counts, and the usual policy."""
    fallback.reset()
    with fallback.policy("warn"):
        yield
    fallback.reset()


@pytest.fixture
def vulkan() -> Device:
    return dl.device("vulkan:0")


class PickyBackend:
    """A device's backend, but for programs that it does not build: those whose name `refuses` accepts."""

    def __init__(self, device: Device, refuses: Callable[[str], bool]) -> None:
        self.backend, self.refuses = device._backend, refuses
        self.info = self.backend.info
        self.asked: list[tuple[str, tuple[int, ...]]] = []

    def program(self, module: SpirvModule, constants: Sequence[int]) -> Program:
        """What the driver does."""
        self.asked.append((module.name, tuple(constants)))
        if self.refuses(module.name):
            raise REFUSAL
        return self.backend.program(module, constants)


def refuse(
    monkeypatch: pytest.MonkeyPatch, device: Device, refuses: Callable[[str], bool] = lambda name: True
) -> PickyBackend:
    """From now on the device builds no such programs."""
    backend = PickyBackend(device, refuses)
    monkeypatch.setattr(device, "_programs", Programs(backend))  # type: ignore[arg-type]
    return backend


def rows() -> list[tuple[str, str, str, int]]:
    """The report, in the order of names."""
    return sorted((row.op, row.reason, row.dtype, row.calls) for row in fallback.report())


# What is counted


@pytest.mark.vulkan
def test_a_missing_dtype_is_counted_with_its_bytes(vulkan: Device) -> None:
    x = dl.tensor([1.0, 2.0, 3.0], dtype="float64", device=vulkan)
    for _ in range(3):
        assert (x + x).tolist() == [2.0, 4.0, 6.0]
    [row] = fallback.report()
    assert (row.op, row.device, row.reason, row.dtype) == ("add", "vulkan:0", "no float64 kernel", "float64")
    assert (row.calls, row.bytes_down, row.bytes_up) == (3, 3 * 48, 3 * 24)
    assert row.seconds > 0
    text = str(fallback.report())
    assert "MB down" in text
    assert "float64" in text  # the reason is folded where the terminal is narrow
    fallback.reset()
    assert list(fallback.report()) == []


def test_the_cpu_has_no_fallback() -> None:
    x = dl.tensor([3.0, 1.0, 2.0], device="cpu").double()
    with fallback.policy("error"):
        assert dl.sort(x + x).values.tolist() == [2.0, 4.0, 6.0]
        parameter = dl.nn.Parameter(x)
        parameter.grad = x
        dl.optim.SGD([parameter], lr=1.0).step()
    assert list(fallback.report()) == []


@pytest.mark.vulkan
@pytest.mark.parametrize(
    ("compute", "expected", "row"),
    [
        (lambda x: dl.bincount(x.int()), [0, 1, 1, 1], ("bincount", "no kernel", "int32", 1)),
        (lambda x: dl.unique(x), [1.0, 2.0, 3.0], ("unique", "faster on the host", "float32", 1)),
        (lambda x: x.int().cumprod(0), [3, 3, 6], ("cumprod", "no int64 kernel", "int64", 1)),
        (
            lambda x: (
                dl.zeros(512, device=x.device)
                .reshape((2,) * 9)
                .copy_(x[1:].repeat(256).reshape((2,) * 9).permute(*reversed(range(9))))
                .flatten()[::256]
            ),
            [1.0, 2.0],
            ("copy_", "no kernel for this layout", "float32", 1),
        ),
        (lambda x: x.half().normal_().shape, (3,), ("normal_", "no float16 kernel", "float16", 1)),
    ],
)
def test_what_goes_through_the_host_unseen(
    compute: Callable[[Any], Any], expected: Any, row: tuple[str, str, str, int], vulkan: Device
) -> None:
    result = compute(dl.tensor([3.0, 1.0, 2.0], device=vulkan))
    assert (result.tolist() if isinstance(result, dl.Tensor) else result) == expected
    assert row in rows()


@pytest.mark.vulkan
def test_what_reads_indices_is_no_fallback(vulkan: Device) -> None:
    x = dl.tensor([[3.0, 1.0], [2.0, 5.0]], device=vulkan)
    with fallback.policy("error"):
        index = dl.tensor([1, 0], device=vulkan)
        assert x[index].tolist() == [[2.0, 5.0], [3.0, 1.0]]
        assert x[0, 1].item() == 1.0
        assert x[x > 2.0].tolist() == [3.0, 5.0]
    assert list(fallback.report()) == []


@pytest.mark.vulkan
def test_optimizers_in_other_dtypes(vulkan: Device) -> None:
    p = dl.nn.Parameter(dl.tensor([1.0, 2.0], device=vulkan).double())
    p.grad = dl.tensor([0.5, -0.5], device=vulkan).double()
    mean = dl.optim.EMA([p], decay=0.5)
    dl.optim.SGD([p], lr=1.0).step()
    mean.update()
    assert p.tolist() == [0.5, 2.5]
    assert mean.shadow[0].tolist() == [0.75, 2.25]
    assert {("SGD", "no float64 kernel", "float64", 1), ("EMA", "no float64 kernel", "float64", 1)} <= set(
        rows()
    )


@pytest.mark.vulkan
def test_threads_lose_no_count(vulkan: Device) -> None:
    x = dl.tensor([1.0, 2.0], dtype="float64", device=vulkan)

    def work() -> None:
        for _ in range(20):
            x + x

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert rows() == [("add", "no float64 kernel", "float64", 80)]
    assert fallback.report()[0].bytes_down == 80 * 32


def test_a_call_that_fails_does_not_count() -> None:
    place = Device.of_backend("null:0", FaultyBackend())
    with pytest.raises(ArgumentError, match="no elements"):
        dl.median(dl.zeros(0, device=place))
    assert list(fallback.report()) == []


# The policy


@pytest.mark.vulkan
def test_the_log_says_it_once_for_each_reason(vulkan: Device, caplog: pytest.LogCaptureFixture) -> None:
    x = dl.tensor([1.0, 2.0], dtype="float64", device=vulkan)
    with caplog.at_level(logging.WARNING, "dl4all"):
        with fallback.policy("silent"):
            x + x
        assert not caplog.records
        for _ in range(2):
            x + x
            x * x
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        f"[{op}] has no float64 kernel for vulkan:0 and runs on the CPU; convert with .float() to stay there"
        for op in ("add", "mul")
    ]


@pytest.mark.vulkan
def test_an_error_instead(vulkan: Device) -> None:
    x = dl.tensor([1.0, 2.0], dtype="float64", device=vulkan)
    y = dl.tensor([1.0, 2.0], device=vulkan)
    with fallback.policy("error"):
        with pytest.raises(FallbackError, match=r"^\[add\] has no float64 kernel for vulkan:0 and may not"):
            x + x
        with pytest.raises(FallbackError, match=r"^\[bincount\] .*policy\(\"warn\"\) allows it$"):
            dl.bincount(y.int())
        with fallback.policy("silent"):
            assert (x + x).tolist() == [2.0, 4.0]
        with pytest.raises(FallbackError):
            x.add_(x)
        assert (y + y).tolist() == [2.0, 4.0]
    assert x.add_(x).tolist() == [2.0, 4.0]


def test_an_unknown_policy() -> None:
    with pytest.raises(ArgumentError, match=r"must be one of warn, silent, error, got 'loud'"):
        fallback.policy("loud")  # type: ignore[arg-type]


def test_the_environment_says_the_first_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    x = dl.zeros(2, dtype="float64", device=Device.of_backend("null:0", FaultyBackend()))
    monkeypatch.setattr(fallback, "_mode", None)
    monkeypatch.setenv("DL4ALL_FALLBACK", "loud")
    with pytest.raises(ConfigError, match="DL4ALL_FALLBACK"):
        x + x
    monkeypatch.setenv("DL4ALL_FALLBACK", "error")
    with pytest.raises(FallbackError):
        x + x
    fallback.policy("silent")  # acts at once, without a block
    x + x
    assert rows() == [("add", "no float64 kernel", "float64", 1)]


# Pipelines that a driver does not build


def test_a_refused_program_is_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    backend = FaultyBackend()
    x = dl.zeros(5, device=Device.of_backend("null:0", backend))
    backend.fail("program", error=REFUSAL)
    with caplog.at_level(logging.WARNING, "dl4all"):
        for _ in range(3):
            x + x
    assert (backend.counts["program"], backend.counts["dispatch"]) == (0, 0)
    [row] = fallback.report()
    assert (row.op, row.reason, row.calls, row.bytes_down, row.bytes_up) == ("add", "no pipeline", 3, 120, 60)
    assert "internal compiler error 42" in row.message
    assert "internal compiler error 42" in " ".join(str(fallback.report()).split())
    assert [record.getMessage() for record in caplog.records] == [row.message]
    x.exp()  # other programs are built
    assert (backend.counts["program"], backend.counts["dispatch"]) == (1, 1)


@pytest.mark.parametrize("error", [OutOfMemoryError("x"), DeviceLostError("x"), DeviceError("[null] closed")])
def test_other_errors_are_raised_and_not_remembered(error: DeviceError) -> None:
    backend = FaultyBackend()
    x = dl.zeros(5, device=Device.of_backend("null:0", backend))
    backend.fail("program", error=error)
    with pytest.raises(type(error)):
        x + x
    x + x
    assert (backend.counts["dispatch"], list(fallback.report())) == (1, [])


def test_a_mistake_in_a_launch_is_no_fallback() -> None:
    """Also where the driver would refuse the program anyway."""
    backend = FaultyBackend()
    place = Device.of_backend("null:0", backend)
    backend.fail("program", times=9, error=REFUSAL)
    wrong = Launch(Shader("optim/scale.comp"), (1, 1, 1), struct.pack("<I", 1))
    with pytest.raises(ShaderError) as raised:
        place.launch(wrong, place.allocate(4))
    assert not isinstance(raised.value, PipelineError)
    assert "push constants, got 1 and 4" in str(raised.value)


def test_a_pipeline_that_is_refused_when_it_runs() -> None:
    """Some backends build one at its first dispatch."""
    backend = FaultyBackend()
    x = dl.zeros(5, device=Device.of_backend("null:0", backend))
    backend.fail("dispatch", error=PipelineError("[driver] internal compiler error 42"))
    x + x
    x + x
    assert (backend.counts["dispatch"], rows()) == (0, [("add", "no pipeline", "float32", 2)])


def test_what_kompute_says_of_a_pipeline() -> None:
    said = typed(RuntimeError("createComputePipeline: ErrorUnknown"), "building x", PipelineError)
    assert isinstance(said, PipelineError)
    lost = typed(RuntimeError("ErrorDeviceLost"), "building x", PipelineError)
    assert isinstance(lost, DeviceLostError)


def test_a_launch_without_an_op_says_what_to_do() -> None:
    backend = FaultyBackend()
    place = Device.of_backend("null:0", backend)
    backend.fail("program", error=REFUSAL)
    scale = Shader("optim/scale.comp")
    x = place.allocate(64)
    for _ in range(2):
        with pytest.raises(PipelineError, match=r"error 42 \(optim/scale.comp has no pipeline on .*; update"):
            place.launch(Launch(scale, (1, 1, 1), struct.pack("<III", 0, 1, 1)), x, x, x)


@pytest.mark.vulkan
@each_example("layout", ["contiguous", "strided"], most=1)
def test_every_op_without_pipelines(
    op: Op[...], case: Example, layout: str, vulkan: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, vulkan)
    fallback.policy("silent")
    tensors, elements = operands_of(op, case, LAYOUTS[layout], vulkan)
    arguments = dict(case.arguments)
    compare(op(*tensors, **arguments), reference(op, list(elements), **arguments))


@pytest.mark.vulkan
@pytest.mark.parametrize("word", ["", "optim/", "random/", "memory/", "elementwise/"])
def test_training_without_some_pipelines(word: str, vulkan: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """In-place ops, random numbers, assignments, gradients, clipping and steps."""
    backend = refuse(monkeypatch, vulkan, lambda name: word in name)
    fallback.policy("silent")
    for found, expected in zip(results(vulkan), results("cpu"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    refused = [program for program in backend.asked if word in program[0]]
    assert refused
    assert len(refused) == len(set(refused))  # none is tried twice
    assert any(row.reason == "no pipeline" for row in fallback.report())


@pytest.mark.vulkan
def test_many_small_parameters(vulkan: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused kernel for many leaves those for one; if these are refused too, the host does each once."""
    expected = [step_of_twenty(dl.device("cpu"))] * 2
    found = []
    for word in ("MULTI_TENSOR=1", "optim/"):
        refuse(monkeypatch, vulkan, lambda name, word=word: word in name)  # type: ignore[misc]
        found.append(step_of_twenty(vulkan))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert {("SGD", "no pipeline", "float32", 20), ("EMA", "no pipeline", "float32", 20)} <= set(rows())


def step_of_twenty(device: Device) -> np.ndarray[Any, Any]:
    """Parameters of one size after a step, their averages, and the norm of the gradients."""
    params = [dl.nn.Parameter(dl.tensor([1.0 + i, 2.0, -3.0 * i], device=device)) for i in range(20)]
    for i, p in enumerate(params):
        p.grad = dl.tensor([0.5, -float(i), 0.25], device=device)
    average = dl.optim.EMA(params, decay=0.5)
    norm = dl.nn.utils.clip_grad_norm_(params, 2.0)
    dl.optim.SGD(params, lr=0.5).step()
    average.update()
    found = [*params, *average.shadow]
    return np.stack([*(t.detach().numpy() for t in found), np.full(3, norm.item(), np.float32)])


@pytest.mark.vulkan
@pytest.mark.parametrize("code", [-3, -13])  # VK_ERROR_INITIALIZATION_FAILED, VK_ERROR_UNKNOWN
def test_a_vulkan_driver_that_builds_nothing(
    code: int, vulkan: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = dl.tensor([1.0, 2.0], device=vulkan)
    vulkan_answers(monkeypatch, code)
    monkeypatch.setattr(vulkan, "_programs", Programs(vulkan._backend))
    assert (x * 3 + 1).tolist() == [4.0, 7.0]
    assert all("building the pipeline of elementwise/" in row.message for row in fallback.report())
    assert [row[:2] for row in rows()] == [("add", "no pipeline"), ("mul", "no pipeline")]


@pytest.mark.vulkan
def test_a_vulkan_driver_without_memory(vulkan: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = dl.tensor([1.0, 2.0], device=vulkan)
    vulkan_answers(monkeypatch, -1)  # VK_ERROR_OUT_OF_HOST_MEMORY
    monkeypatch.setattr(vulkan, "_programs", Programs(vulkan._backend))
    with pytest.raises(OutOfMemoryError):
        x * 3


def vulkan_answers(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """vkCreateComputePipelines gives this code, and all else is as it was."""
    real = api()
    names = {name: getattr(real, name) for name in dir(real) if name.startswith("VK_")}
    lib = SimpleNamespace(vkCreateComputePipelines=lambda *arguments: code)
    monkeypatch.setattr(vulkan_program, "api", lambda: SimpleNamespace(**names, ffi=real.ffi, lib=lib))


# In a profile


@pytest.mark.vulkan
def test_a_profile_shows_it(vulkan: Device) -> None:
    x = dl.tensor([1.0, 2.0], dtype="float64", device=vulkan)
    with dl.profile() as p:
        x + x
    [event] = [event for event in p.events if event.kind == "fallback"]
    [op] = [event for event in p.events if event.kind == "op"]
    assert (event.op, event.device, event.nbytes) == ("add", "vulkan:0", 48)
    assert event.reason == "no float64 kernel"
    assert op.start <= event.start < event.end <= op.end
    assert "On the CPU for want of a kernel: 1," in str(p)
    [entry] = [entry for entry in trace(p.events)["traceEvents"] if entry.get("cat") == "fallback"]
    assert (entry["name"], entry["args"]["reason"]) == ("add on the CPU", "no float64 kernel")


@pytest.mark.vulkan
def test_a_profile_without_one(vulkan: Device) -> None:
    x = dl.tensor([1.0, 2.0], device=vulkan)
    with dl.profile() as p:
        x + x
    assert not [event for event in p.events if event.kind == "fallback"]
    assert "want of a kernel" not in str(p)


def test_a_profile_changes_no_count() -> None:
    """What falls back while somebody profiles is counted as it is otherwise."""
    need("vulkan:0")
    x = dl.rand(5, 3, device="vulkan:0", dtype="float64")

    def counts() -> list[tuple[str, int]]:
        fallback.reset()
        with fallback.policy("silent"):
            x.erfinv().numpy()
            dl.linalg.svd(x)
        return sorted((row.op, row.calls) for row in fallback.report())  # a report goes by seconds

    plain = counts()
    with dl.profile():
        profiled = counts()
    assert plain
    assert profiled == plain
