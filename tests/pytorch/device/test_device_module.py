"""``torch.dlall`` and ``torch.accelerator``: devices, memory, streams, events and random numbers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import dl4all.torch  # noqa: E402, F401 - registers the device
from dl4all.errors import ArgumentError, BackendMissingError, UnknownDeviceError  # noqa: E402
from dl4all.pytorch.device import devices, versions  # noqa: E402

dlall: Any = torch.dlall


def test_facts_of_devices(place: str) -> None:
    index = torch.device(place).index
    properties = dlall.get_device_properties(place)
    assert dlall.is_available()
    assert dlall.device_count() == len(devices.names()) > index
    assert properties.name == dlall.get_device_name(index)
    assert properties.total_memory > 0
    free, total = dlall.mem_get_info(place)
    assert 0 <= free <= total == properties.total_memory


def test_accelerator_is_dlall() -> None:
    assert torch.accelerator.current_accelerator() == torch.device("dlall")
    assert torch.accelerator.device_count() == dlall.device_count()
    torch.accelerator.synchronize()
    assert torch.accelerator.memory_allocated() == dlall.memory_allocated()
    assert torch.accelerator.current_stream() == dlall.current_stream()
    assert torch.float32 in torch.accelerator.get_device_capability()["supported_dtypes"]


def test_memory_is_counted(place: str) -> None:
    before = dlall.memory_allocated(place)
    x = torch.empty(1009, device=place)
    assert dlall.memory_allocated(place) == before + x.nbytes
    dlall.reset_peak_memory_stats(place)
    del x
    assert dlall.memory_allocated(place) == before
    assert dlall.max_memory_allocated(place) >= before + 4036
    assert dlall.memory_stats(place)["allocated_bytes.all.current"] == before
    dlall.empty_cache()


@pytest.fixture
def second() -> Any:
    if len(devices.names()) < 2:
        pytest.skip("there is one device")
    before = dlall.current_device()
    yield torch.device("dlall", 1)
    dlall.set_device(before)


def test_current_device_is_meant_where_no_index_is_given(second: Any) -> None:
    with dlall.device(1):
        assert torch.accelerator.current_device_index() == 1
        made = [
            torch.empty(2, device="dlall"),
            torch.ones(2).to("dlall"),
            torch.tensor([1.0], device="dlall"),
            torch.nn.Linear(2, 2).to("dlall").weight,
            torch.ones(3).dlall(),
        ]
        assert [one.device for one in made] == [second] * len(made)
    assert torch.ones(2).to("dlall").device.index == dlall.current_device() == 0
    with torch.accelerator.device_index(1):
        assert dlall.current_device() == 1
    with dlall.device_of(made[0]):
        assert dlall.current_device() == 1


def test_backward_on_a_second_device(second: Any) -> None:
    w = torch.randn(3, 3, device=second, requires_grad=True)
    (w @ w).sum().backward()
    assert w.grad.device == second
    host = w.detach().cpu().requires_grad_()
    (host @ host).sum().backward()
    torch.testing.assert_close(w.grad.cpu(), host.grad)


def test_unknown_device_is_refused() -> None:
    for attempt in (lambda: torch.empty(2, device="dlall:77"), lambda: dlall.set_device(77)):
        with pytest.raises(UnknownDeviceError, match="no dlall:77"):
            attempt()  # type: ignore[no-untyped-call]


def test_streams_and_events(place: str) -> None:
    stream = dlall.Stream(place)
    begin, end = (torch.Event(place, enable_timing=True) for _ in range(2))
    with dlall.device(place), stream:
        begin.record()
        x = torch.randn(5, device=place) * 2
        end.record(stream)
    end.synchronize()
    assert end.query()
    assert begin.elapsed_time(end) >= 0
    assert end.device == x.device
    stream.wait_stream(dlall.current_stream(place))
    stream.synchronize()
    assert stream.query()
    assert stream == torch.Stream(device=place)
    assert isinstance(begin, torch.Event)
    assert isinstance(stream, torch.Stream)
    with pytest.raises(ArgumentError, match="enable_timing"):
        torch.Event(place).elapsed_time(end)


def test_random_numbers_repeat(place: str) -> None:
    torch.manual_seed(5)
    state = dlall.get_rng_state(place)
    first = torch.randn(17, device=place)
    with torch.random.fork_rng(devices=[place], device_type="dlall"):
        torch.randn(3, device=place)
    second = torch.randn(17, device=place)
    assert not torch.equal(first, second)
    dlall.set_rng_state(state, place)
    assert torch.equal(torch.randn(17, device=place), first)
    assert torch.equal(torch.randn(17, device=place), second)


def test_generator_of_a_user(place: str) -> None:
    generator = torch.Generator(device=place).manual_seed(3)
    assert generator.device == torch.device(place)
    assert isinstance(generator, torch.Generator)
    first = torch.randn(7, device=place, generator=generator)
    generator.manual_seed(3)
    with torch.device(place):  # the default device must not be that of its seeds
        assert torch.equal(torch.randn(7, generator=generator), first)
    assert torch.Generator().device.type == "cpu"


def test_missing_private_names_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert versions.missing() == []
    monkeypatch.setattr(versions, "PRIVATE", ("_C.no_such_name",))
    with pytest.raises(
        BackendMissingError, match=r"lacks torch\._C\.no_such_name.*tested with the releases 2\."
    ):
        versions.check()
