"""``dl.profiler`` counts, sums up and steps as ``torch.profiler`` does."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all import nn
from dl4all.errors import ArgumentError
from dl4all.pytorch.names.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)
from dl4all.runtime.profiler.averages import SORTED_BY, Average
from dl4all.runtime.profiler.recorder import RecordedEvent


def row(prof: profile, key: str) -> Average:
    return next(row for row in prof.key_averages() if row.key == key)


def test_ranges_hold_the_time_of_their_ops(device: str) -> None:
    net = nn.Linear(13, 7, device=device)
    x = dl.randn(5, 13, device=device)
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as prof:
        with record_function("outer"):
            with record_function("inner"):
                y = net(x)
            y.relu()
        net(x)
    outer, inner, linear, relu = (row(prof, key) for key in ("outer", "inner", "linear", "relu"))
    assert (outer.count, inner.count, linear.count, relu.count) == (1, 1, 2, 1)
    assert outer.cpu_time_total >= inner.cpu_time_total + relu.cpu_time_total
    within = inner.cpu_time_total + relu.cpu_time_total
    np.testing.assert_allclose(outer.self_cpu_time_total, outer.cpu_time_total - within)
    assert linear.flops >= 2 * 2 * 5 * 13 * 7
    assert linear.cpu_time == linear.cpu_time_total / 2
    kernels = [event for event in prof.events() if event.kind == "kernel"]
    total = prof.key_averages().total_average()
    if device.startswith("cpu"):
        assert total.device_time_total == 0
    else:
        np.testing.assert_allclose(total.device_time_total, sum(event.seconds for event in kernels) * 1e6)
        assert outer.device_time_total >= inner.device_time_total
        assert outer.self_device_time_total == 0
    alone = [event for event in prof.events() if event.kind in ("op", "range") and event.parent is None]
    np.testing.assert_allclose(total.self_cpu_time_total, sum(event.seconds for event in alone) * 1e6)


def test_allocations_count_where_they_happen(device: str) -> None:
    x = dl.randn(11, 17, device=device)
    with profile(profile_memory=True) as prof, record_function("all"):
        y = x.exp()
        y.relu()
    kind = "cpu" if device.startswith("cpu") else "device"
    found = {key: getattr(row(prof, key), f"{kind}_memory_usage") for key in ("all", "exp", "relu")}
    assert found["exp"] >= 11 * 17 * 4
    assert found["all"] == found["exp"] + found["relu"]
    assert getattr(row(prof, "all"), f"self_{kind}_memory_usage") == 0


def test_shapes_make_rows_of_their_own() -> None:
    with profile(record_shapes=True) as prof:
        for count in (3, 5, 5):
            dl.randn(count, 2, device="cpu").exp()
    rows = [row for row in prof.key_averages(group_by_input_shape=True) if row.key == "exp"]
    assert [(row.input_shapes, row.count) for row in rows] == [(((3, 2),), 1), (((5, 2),), 2)]
    text = prof.key_averages(group_by_input_shape=True).table(max_shapes_column_width=6)
    assert "Input Shapes" in text
    assert "[(5..." in text
    assert "[(5, 2)]" not in text


def made() -> profile:
    """One with times that are known."""
    prof = profile()
    with prof:
        pass
    step = RecordedEvent("range", "ProfilerStep#3", "", 1, 0.0, 4e-3)
    op = RecordedEvent("op", "matmul", "gpu", 1, 1e-3, 2e-3, parent=step, shapes=((2, 2), (2, 2)), flops=16)
    inner = RecordedEvent("op", "clone", "gpu", 1, 1e-3, 1.25e-3, parent=op)
    kernel = RecordedEvent("kernel", "gemm", "gpu", 1, 0.5, 0.75, parent=op)
    copy = RecordedEvent("upload", "upload", "gpu", 1, 2e-3, 2.5e-3, nbytes=64, parent=step)
    memory = RecordedEvent("allocation", "pool", "gpu", 1, 1e-3, 1e-3, nbytes=3 * 1024**2, parent=inner)
    prof.events().extend([step, op, inner, kernel, copy, memory])
    return prof


def test_the_table_has_pytorchs_columns() -> None:
    rows = made().key_averages()
    assert [row.key for row in rows] == ["ProfilerStep*", "matmul", "clone", "upload"]
    np.testing.assert_allclose([row.self_cpu_time_total for row in rows], [2500, 750, 250, 500])
    lines = rows.table(sort_by="self_cuda_time_total", row_limit=2, header="made").splitlines()
    assert lines[0] == "made"
    assert lines[2].split("  ")[-1].strip() == "Total MFLOPs"
    assert [line.split()[0] for line in lines[4:6]] == ["matmul", "ProfilerStep*"]
    for text in ("18.75%", "750.000us", "1.000ms", "250.000ms", "3.00 Mb"):
        assert text in lines[4]
    assert lines[7:] == ["Self CPU time total: 4.000ms", "Self device time total: 250.000ms"]
    assert "0.004s" in rows.table(time_unit="s")
    assert len(rows.table(row_limit=-1).splitlines()) == 4 + 4 + 2
    for name in SORTED_BY:
        assert rows.table(sort_by=name)


def test_columns_and_names_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="the names are PyTorch's")
    from torch.profiler import profile as torch_profile

    with torch_profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        torch.randn(3).exp()
    with profile() as ours:
        dl.randn(3, device="cpu").exp()
    columns = [name for name in theirs.key_averages().table().splitlines()[1].split("  ") if name.strip()]
    shown = ours.key_averages().table().splitlines()[1]
    assert all(name.strip() in shown for name in columns)
    average = theirs.key_averages()[0]
    assert {name for name in vars(Average("x")) if not name.startswith("_")} <= set(dir(average))
    for step in range(30):
        given: dict[str, int] = {"wait": 2, "warmup": 1, "active": 3, "repeat": 2, "skip_first": 4}
        for first in (0, 1):
            one = schedule(**given, skip_first_wait=first)(step)
            other = torch.profiler.schedule(**given, skip_first_wait=first)(step)
            assert one.name == other.name
    assert {one.name for one in ProfilerActivity} <= set(dir(torch.profiler.ProfilerActivity))


def test_steps_go_by_the_schedule() -> None:
    ready: list[tuple[int, list[str]]] = []

    def look(prof: profile) -> None:
        ready.append((prof.step_num, [event.name for event in prof.events() if event.kind == "range"]))

    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=look) as prof:
        for _ in range(9):
            dl.ones(3, device="cpu").exp()
            prof.step()
    assert ready == [
        (4, ["ProfilerStep#2", "ProfilerStep#3"]),
        (8, ["ProfilerStep#6", "ProfilerStep#7"]),
    ]
    assert row(prof, "ProfilerStep*").count == row(prof, "exp").count == 2


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch has its opinion about some schedules
def test_actions_are_those_of_pytorch() -> None:
    """Which recordings are handed out, and when: in the middle, at the end, one after the other."""
    torch = pytest.importorskip("torch", reason="what happens is compared with PyTorch")

    def handed_out(library: Any, sequence: list[str]) -> list[int]:
        found: list[int] = []
        actions = [getattr(library.ProfilerAction, name) for name in sequence]
        with library.profile(
            activities=[library.ProfilerActivity.CPU],
            schedule=lambda step: actions[min(step, len(actions) - 1)],
            on_trace_ready=lambda prof: found.append(prof.step_num),
        ) as prof:
            for _ in actions[1:]:
                prof.step()
        return found

    none, warmup, record, save = (action.name for action in ProfilerAction)
    for sequence in (
        [none],
        [none, warmup, record],
        [warmup, record, record, save],
        [record, record],
        [record, save, none, none],
        [save, save, save],
        [save, record, save, warmup, save],
        [none, save, warmup, record, save, none],
    ):
        assert handed_out(dl.profiler, sequence) == handed_out(torch.profiler, sequence), sequence


def test_without_a_schedule_all_steps_are_recorded() -> None:
    prof = profile()
    prof.start()
    for _ in range(3):
        dl.ones(3, device="cpu").exp()
        prof.step()
    prof.stop()
    assert row(prof, "exp").count == 3
    assert prof.step_num == 3


def test_a_function_may_be_a_range() -> None:
    @record_function("countdown")
    def countdown(number: int) -> int:
        return countdown(number - 1) if number else 0

    assert countdown(2) == 0  # without a profile
    with profile() as prof:
        countdown(2)
    assert row(prof, "countdown").count == 3


def test_ranges_end_with_errors() -> None:
    with profile() as prof:
        with pytest.raises(ZeroDivisionError), record_function("broken"):
            1 / 0  # noqa: B018  # what fails
        with record_function("whole"):
            dl.ones(3, device="cpu").exp()
    parents = {
        event.name: event.parent and event.parent.name for event in prof.events() if event.kind != "kernel"
    }
    assert parents["exp"] == "whole"
    assert parents["whole"] is None


def test_traces_are_written(tmp_path: Path, device: str) -> None:
    x = dl.randn(5, 3, device=device)
    write = tensorboard_trace_handler(str(tmp_path / "a" / "b"), use_gzip=True)
    with profile(on_trace_ready=write) as prof, record_function("step"):
        x.exp()
    (packed,) = (tmp_path / "a" / "b").iterdir()
    assert packed.name.endswith(".pt.trace.json.gz")
    prof.export_chrome_trace(tmp_path / "plain.json")
    plain = json.loads((tmp_path / "plain.json").read_text())
    assert json.loads(gzip.decompress(packed.read_bytes())) == plain
    step, exp = (next(e for e in plain["traceEvents"] if e["name"] == name) for name in ("step", "exp"))
    assert (step["pid"], step["tid"]) == (exp["pid"], exp["tid"])
    assert step["ts"] <= exp["ts"]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ArgumentError, match="execution_trace_observer"):
        profile(execution_trace_observer=print)
    with pytest.raises(ArgumentError, match=r"active of at least 1, got wait=0, warmup=0, active=0"):
        schedule(wait=0, warmup=0, active=0)
    with pytest.raises(ArgumentError, match="nothing was recorded; use it as a with block"):
        profile().key_averages()
    prof = made()
    with pytest.raises(ArgumentError, match="cannot sort by 'speed'; expected one of count, cpu_time"):
        prof.key_averages().table(sort_by="speed")
    with pytest.raises(ArgumentError, match="unknown time_unit 'h'"):
        prof.key_averages().table(time_unit="h")
    with pytest.raises(ArgumentError, match="top_level_events_only"):
        prof.key_averages().table(top_level_events_only=True)
    with pytest.raises(ArgumentError, match="no stacks"):
        prof.export_stacks("stacks.txt")
    with pytest.raises(ArgumentError, match=r"dl\.memory\.trace"):
        prof.export_memory_timeline("memory.html")
    with dl.profile(), pytest.raises(ArgumentError, match="another profile is active"):
        profile().start()
    assert ProfilerActivity.CPU in supported_activities()
