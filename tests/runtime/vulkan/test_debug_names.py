"""Names of objects and labels of commands: who gets them, what they say, and that they nest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dl4all as dl
from dl4all.runtime import op_regions
from dl4all.runtime.protocols import Copy, span
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.runtime.vulkan.commands import CommandWriter
from dl4all.runtime.vulkan.debug import debug_names, debug_tools
from dl4all.runtime.vulkan.debug.debug_names import DebugNames, LabellingWriter
from dl4all.runtime.vulkan.instance import api, instance
from dl4all.testing.conformance.support.kernels import write_shaders
from tests.conftest import need, run_python
from tests.runtime.test_validation import messages_of
from tests.runtime.vulkan.scene import module, play, step

pytestmark = pytest.mark.vulkan
TRACING, PROFILING, VALIDATING = 4, 2, 1


class Log:
    """Stands in for the extension: what begins and ends, indented, and the names of objects."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self.depth = 0
        self.ended_at: list[int] = []  # the depth at which command buffers were left

    def begin(self, commands: Any, label: Any) -> None:
        self.lines.append("  " * self.depth + api().ffi.string(label.pLabelName).decode())
        self.depth += 1

    def end(self, commands: Any) -> None:
        assert self.depth > 0
        self.depth -= 1

    def name(self, device: Any, info: Any) -> None:
        self.names[info.objectHandle] = api().ffi.string(info.pObjectName).decode()

    def function(self, vulkan: Any, made: Any, name: str) -> Any:
        return {
            "vkCmdBeginDebugUtilsLabelEXT": self.begin,
            "vkCmdEndDebugUtilsLabelEXT": self.end,
            "vkSetDebugUtilsObjectNameEXT": self.name,
        }[name]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    need("vulkan:0")
    log = Log()
    monkeypatch.setattr(debug_names, "function", log.function)
    monkeypatch.setattr(op_regions, "watched", False)
    last_barrier = LabellingWriter.last_barrier

    def leave(self: LabellingWriter) -> None:
        last_barrier(self)
        log.ended_at.append(log.depth)

    monkeypatch.setattr(LabellingWriter, "last_barrier", leave)
    return log


def test_every_command_has_a_label_and_labels_end_with_their_command_buffer(log: Log, tmp_path: Path) -> None:
    backend = VulkanBackend(0)
    try:
        assert isinstance(backend.names, DebugNames)
        with op_regions.within("outer"):
            play(backend, module(tmp_path))
        assert set(log.ended_at) == {0}
        assert len(log.ended_at) > 3
        words = {line.strip() for line in log.lines}
        assert {"outer", "step.comp (4, 1, 1)", "copy 1004 bytes", "fill 1004 bytes"} <= words
        assert any(line.startswith("step.comp (") and "from (" in line for line in words)  # a tile
        assert {line for line in log.lines if not line.startswith("  ")} == {"outer"}
        assert {"step.comp", "device memory, 1004 bytes", "host memory, 1004 bytes"} <= set(
            log.names.values()
        )
        assert "dl4all vulkan:0, queue 0" in log.names.values()
    finally:
        backend.close()


def test_regions_nest_and_two_calls_of_an_op_are_two(log: Log, tmp_path: Path) -> None:
    backend = VulkanBackend(0)
    try:
        program = backend.program(module(tmp_path), ())
        x, y, z = (span(backend.allocate(1004)) for _ in range(3))
        with dl.debug_region("a layer"):
            for _ in range(2):
                with op_regions.within("op"):
                    backend.stream.dispatch(step(program, x, y))
                    backend.stream.copy(Copy(x, z))
            backend.stream.copy(Copy(y, z))
        backend.stream.copy(Copy(x, z))
        backend.stream.synchronize()
    finally:
        backend.close()
    one = ["  op", "    step.comp (4, 1, 1)", "    copy 1004 bytes"]
    assert log.lines == ["a layer", *one, *one, "  copy 1004 bytes", "copy 1004 bytes"]


def test_a_region_goes_on_in_the_next_command_buffer(log: Log, tmp_path: Path) -> None:
    backend = VulkanBackend(0)
    try:
        x, y = (span(backend.allocate(1004)) for _ in range(2))
        with dl.debug_region("both"):
            for _ in range(2):
                backend.stream.copy(Copy(x, y))
                backend.stream.synchronize()
    finally:
        backend.close()
    assert log.lines == ["both", "  copy 1004 bytes"] * 2


@pytest.mark.parametrize(
    ("setting", "purposes", "trace", "expected"),
    [
        ("", [], "", False),
        ("", [VALIDATING], "", False),
        ("", [VALIDATING, TRACING], "", True),
        ("", [PROFILING], "", True),
        ("", [], "rgp", True),
        ("0", [TRACING], "rgp", False),
        ("1", [], "", True),
    ],
)
def test_who_is_shown_names(
    setting: str, purposes: list[int], trace: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DL4ALL_DEBUG_NAMES", setting)
    monkeypatch.setenv("MESA_VK_TRACE", trace)
    found = [("a tool", purpose) for purpose in purposes]
    monkeypatch.setattr(debug_tools, "tools", lambda vulkan, made: iter(found))
    assert debug_tools.wanted(api(), None) is expected


def test_drivers_are_asked_for_tools() -> None:
    need("vulkan:0")
    assert all(name and purposes for name, purposes in debug_tools.tools(api(), instance()))


ALONE = """
import dl4all as dl
from dl4all.runtime import op_regions
from dl4all.runtime.vulkan.debug import debug_names, debug_tools
TOOLS
begun = []
made = debug_names.LabellingWriter._begin_label
debug_names.LabellingWriter._begin_label = lambda self, name: (begun.append(name), made(self, name))
x = dl.ones(4, device="vulkan:0")
print(op_regions.watched, (x + x).tolist(), [name for name in begun if " " not in name])
"""


@pytest.mark.parametrize(
    ("tools", "environment", "expected"),
    [
        ("", {}, "False [2.0, 2.0, 2.0, 2.0] []"),
        ("", {"DL4ALL_DEBUG_NAMES": "1"}, "True [2.0, 2.0, 2.0, 2.0] ['add']"),
        # Found in an instance that is then made anew, with the extension.
        (
            'debug_tools.tools = lambda *_: iter([("RenderDoc", 4)])',
            {},
            "True [2.0, 2.0, 2.0, 2.0] ['add']",
        ),
    ],
)
def test_ops_give_their_names_where_they_are_asked_for(
    tools: str, environment: dict[str, str], expected: str
) -> None:
    need("vulkan:0")
    done = run_python(ALONE.replace("TOOLS", tools), DL4ALL_CALIBRATE="0", **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == expected


def test_without_a_tool_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    monkeypatch.setattr(debug_names, "function", lambda *_: None)
    backend = VulkanBackend(0)
    try:
        assert backend.names is None
        assert type(backend.writer(0)) is CommandWriter
    finally:
        backend.close()


@pytest.mark.slow
def test_the_validation_layer_finds_nothing_wrong_with_them(tmp_path: Path) -> None:
    """The real extension; what the layer says of a mistake has the pipeline's name."""
    need("vulkan:0")
    folder = tmp_path / "shaders"
    folder.mkdir()
    write_shaders(folder)
    said, _ = messages_of(tmp_path, str(folder), "vulkan:0", DL4ALL_VALIDATION="1", DL4ALL_DEBUG_NAMES="1")
    assert said == ""
    wrong = "backend.buffers.discard(x.buffer)"  # it outlives the device
    said, _ = messages_of(
        tmp_path, str(folder), "vulkan:0", after=wrong, DL4ALL_VALIDATION="1", DL4ALL_DEBUG_NAMES="1"
    )
    assert "device memory, 256 bytes" in said
