"""Every call that can fail, failing: a typed error, nothing leaked, and the next device works."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dl4all.errors import DeviceError, DeviceLostError, OutOfMemoryError
from dl4all.runtime.protocols import span
from dl4all.runtime.spirv import SpirvModule
from dl4all.runtime.vulkan.backend import VulkanBackend
from tests.conftest import need
from tests.runtime.vulkan.driver import LOST, Driver, install
from tests.runtime.vulkan.scene import N, after, module, play, step, words

pytestmark = pytest.mark.vulkan
HOST_MEMORY, DEVICE_MEMORY, BROKEN = -1, -2, -3


@pytest.fixture
def code(tmp_path: Path) -> SpirvModule:
    need("vulkan:0")
    return module(tmp_path)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, code: SpirvModule) -> Driver:
    return install(monkeypatch)


def run(code: SpirvModule, *, zero_copy: bool) -> None:
    backend = VulkanBackend(0, zero_copy=zero_copy)
    try:
        play(backend, code)
    finally:
        backend.close()


def outcome(code: SpirvModule, *, zero_copy: bool) -> type[DeviceError] | None:
    """What is raised: nothing where the library can do without the call that failed."""
    try:
        run(code, zero_copy=zero_copy)
    except DeviceError as error:
        return type(error)
    return None


def test_nothing_is_left(driver: Driver, code: SpirvModule) -> None:
    for zero_copy in (True, False):
        run(code, zero_copy=zero_copy)
    assert driver.left == {}
    assert driver.calls["vkCreateDevice"] == driver.calls["vkDestroyDevice"] == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("limits", ["", "minimum"])
@pytest.mark.parametrize("zero_copy", [True, False], ids=["zero-copy", "staging"])
def test_every_call_failing_once(
    driver: Driver, code: SpirvModule, zero_copy: bool, limits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with a result of its kind; whatever comes of it, it is typed and leaves nothing."""
    monkeypatch.setenv("DL4ALL_LIMITS", limits)  # without timeline semaphores, fences count
    run(code, zero_copy=zero_copy)
    calls = driver.failing()
    assert len(calls) > 20
    failures = 0
    for name, count in sorted(calls.items()):
        waits = name.startswith(("vkQueue", "vkWait", "vkGetSemaphore", "vkGetFence", "vkGetQuery"))
        results = (LOST, HOST_MEMORY) if waits else (HOST_MEMORY, DEVICE_MEMORY)
        for number in sorted({*range(min(count, 6)), count // 2, count - 1}):
            for result in results:
                driver.recover()
                driver.fail(name, number, result)
                raised = outcome(code, zero_copy=zero_copy)
                failures += raised is not None
                if raised is not None:
                    assert raised is (DeviceLostError if result == LOST else OutOfMemoryError), (name, number)
                assert driver.left == {}, (name, number, result)
    assert failures > 100
    driver.recover()
    run(code, zero_copy=zero_copy)


def test_a_pipeline_that_cannot_be_built(driver: Driver, code: SpirvModule) -> None:
    backend = VulkanBackend(0)
    driver.fail("vkCreateComputePipelines", 0, BROKEN)
    with pytest.raises(
        DeviceError, match=r"^\[vulkan\] building the pipeline of step.comp failed: VK_ERROR_INIT"
    ):
        backend.program(code, ())
    play(backend, code)  # the device is still good
    backend.close()
    assert driver.left == {}


def test_a_submission_that_fails_for_want_of_memory_is_tried_again(driver: Driver, code: SpirvModule) -> None:
    """No command is lost: what was recorded runs when the driver has memory again."""
    backend = VulkanBackend(0)
    program = backend.program(code, ())
    x, y = span(backend.allocate(4 * N)), span(backend.allocate(4 * N))
    backend.stream.upload(x, words(1).view(np.uint8))
    backend.stream.dispatch(step(program, x, y, 4))
    driver.fail("vkQueueSubmit", 0, HOST_MEMORY)
    with pytest.raises(OutOfMemoryError):
        backend.stream.synchronize()
    backend.stream.dispatch(step(program, y, x, 5))
    out = np.empty(N, np.uint32)
    backend.stream.download(x, out.view(np.uint8))
    np.testing.assert_array_equal(out, after(words(1), 4, 5))
    backend.close()
    assert driver.left == {}
