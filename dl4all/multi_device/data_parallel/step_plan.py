"""Prediction of the time of a training step on several devices, before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dl4all.multi_device.data_parallel.balance import Estimate
from dl4all.multi_device.data_parallel.reduction import BUCKET_BYTES
from dl4all.multi_device.trace.work_trace import BatchWork
from dl4all.nn.module import Module
from dl4all.nn.modules.normalization import BatchNorm
from dl4all.runtime.work import Speeds, WorkCounts
from dl4all.scheduler.cost.cost_model import speeds
from dl4all.scheduler.device.device import Device

UPDATE_TENSORS = 5  # read and written by an optimizer with momentum, for each parameter


class SentParameters(NamedTuple):
    """The parameters of a model that go over the links in each step."""

    tensors: int
    nbytes: int
    largest: int  # bytes of one
    exchanges: int  # of batch normalization, forward and back

    def up(self, link: Speeds) -> float:
        """Seconds in which all go to a device."""
        return self.tensors * link.transfer + self.nbytes * link.per_byte_up

    def down(self, link: Speeds) -> float:
        """Seconds in which as many bytes go to the host."""
        return self.tensors * link.transfer + self.nbytes * link.per_byte_down


class StepPlan(NamedTuple):
    """The split of a batch, and the seconds of a step with an optimizer that has a momentum.

    The seconds of the devices are those in which they compute; the step takes longer where links do.
    """

    devices: tuple[Device, ...]
    rows: tuple[int, ...]
    compute: tuple[float, ...]
    seconds: float

    def __str__(self) -> str:
        parts = (
            f"{device}: {rows} rows, {seconds * 1e3:.2f} ms"
            for device, rows, seconds in zip(self.devices, self.rows, self.compute, strict=True)
        )
        return f"{self.seconds * 1e3:.2f} ms ({'; '.join(parts)})"


def parameters_of(model: Module, *, synchronized: bool) -> SentParameters:
    """The sizes of what a model's devices exchange."""
    learned = [p for p in model.parameters() if p.requires_grad]
    norms = sum(isinstance(module, BatchNorm) for module in model.modules()) if synchronized else 0
    sizes = [p.numel() * p.dtype.itemsize for p in learned]
    return SentParameters(len(learned), sum(sizes), max(sizes, default=0), 2 * norms)


def estimate(device: Device, work: BatchWork, sizes: SentParameters) -> Estimate:
    """A device's speed with a model, as far as the cost model knows."""
    rates = speeds(device)
    fixed, per_row = work.step.fixed.seconds(rates), work.step.per_sample.seconds(rates)
    # A negative one comes from ops that cost more for small batches.
    link = sizes.up(rates) + sizes.down(rates)
    return Estimate(fixed=max(fixed, 0.0), link=link, per_row=max(per_row, 1e-12))


def predict(
    devices: Sequence[Device], rows: Sequence[int], work: BatchWork, sizes: SentParameters, row_nbytes: float
) -> StepPlan:
    """The time of a step with given shares of rows of `row_nbytes` bytes, which come from the host.

    Parameters come while the first layers compute, and gradients go while the last ones do; what is left of
    both at the ends, and the update between them, adds to the time.
    """
    primary, *_ = devices
    used = [(device, share) for device, share in zip(devices, rows, strict=True) if share]
    compute = tuple(
        work.step.at(n).seconds(speeds(d)) if n else 0.0 for d, n in zip(devices, rows, strict=True)
    )
    rates = speeds(primary)
    update = WorkCounts(sizes.tensors, UPDATE_TENSORS * sizes.nbytes).seconds(rates)
    if [device for device, _ in used] == [primary]:
        sent = rates.upload(rows[0] * row_nbytes)
        return StepPlan(tuple(devices), tuple(rows), compute, sent + max(compute) + update)
    forward, backward = 0.0, 0.0
    tail = min(sizes.nbytes, BUCKET_BYTES)
    for device, share in used:
        link = speeds(device)
        ahead = work.forward.at(share).seconds(link)
        back = work.step.at(share).seconds(link) - ahead
        if device is not primary:
            # Each is sent on when all of it has come from the primary device.
            come = max(sizes.down(rates) + link.upload(sizes.largest), sizes.up(link))
            ahead = max(ahead, come)
            back = max(back, sizes.down(link)) + link.download(tail)
        ahead += link.upload(share * row_nbytes)
        forward, backward = max(forward, ahead), max(backward, back)
    latency = max(speeds(device).transfer + speeds(device).launch for device, _ in used)
    meeting = sizes.exchanges * 2 * latency
    add = WorkCounts(sizes.tensors, 3 * sizes.nbytes).seconds(rates)
    seconds = forward + backward + meeting + rates.upload(tail) + add + update
    return StepPlan(tuple(devices), tuple(rows), compute, seconds)
