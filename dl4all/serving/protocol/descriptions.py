"""The answers to questions about a server and its models, as dicts that both protocols send."""

from __future__ import annotations

from typing import Any

from dl4all.pytorch.names.version import __version__
from dl4all.serving.model_config import TensorSpec
from dl4all.serving.served_model import Durations, ServedModel

Description = dict[str, Any]

PLATFORM = "dl4all"
EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "statistics")


def of_server() -> Description:
    """The server's name, version and extensions of the protocol."""
    return {"name": "dl4all", "version": __version__, "extensions": [*EXTENSIONS]}


def of_model(model: ServedModel) -> Description:
    """A model's inputs and outputs."""
    return {
        "name": model.name,
        "versions": [model.version],
        "platform": PLATFORM,
        "inputs": [vars(spec) | {"shape": [*spec.shape]} for spec in model.config.inputs],
        "outputs": [vars(spec) | {"shape": [*spec.shape]} for spec in model.config.outputs],
    }


def of_config(model: ServedModel) -> Description:
    """A model's settings as Triton has them: shapes without the batch."""
    config = model.config
    return {
        "name": model.name,
        "platform": PLATFORM,
        "backend": PLATFORM,
        "max_batch_size": config.max_batch_size,
        "input": [_tensor(spec) for spec in config.inputs],
        "output": [_tensor(spec) for spec in config.outputs],
        "dynamic_batching": {"max_queue_delay_microseconds": config.max_queue_delay_microseconds},
    }


def _tensor(spec: TensorSpec) -> Description:
    return {"name": spec.name, "data_type": f"TYPE_{spec.datatype}", "dims": [*spec.shape[1:]]}


def of_statistics(model: ServedModel) -> Description:
    """The numbers of requests that a model has answered since it was loaded, and the time that they took.

    Copies to and from a device belong to its computation here: ``compute_input`` and ``compute_output`` are
    empty.
    """
    totals, stats = model.totals, model.queue.stats()
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": int(totals.latest * 1000),
        "inference_count": totals.rows,
        "execution_count": stats.batches,
        "inference_stats": {
            "success": _duration(totals.success),
            "fail": _duration(totals.fail),
            "queue": _duration(totals.queue),
            "compute_input": _duration(Durations()),
            "compute_infer": _duration(totals.compute),
            "compute_output": _duration(Durations()),
        },
        "batch_stats": [
            {
                "batch_size": size,
                "compute_infer": {"count": count, "ns": int(stats.batch_seconds[size] * 1e9)},
            }
            for size, count in sorted(stats.batch_sizes.items())
        ],
    }


def _duration(durations: Durations) -> Description:
    return {"count": durations.count, "ns": int(durations.seconds * 1e9)}
