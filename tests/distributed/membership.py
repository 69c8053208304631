"""Programs of several processes join their group, and assert what it refuses."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import dl4all as dl
from dl4all.distributed.process_group import world
from dl4all.distributed.process_group.elastic_group import ElasticGroup

TIMEOUT = 60.0  # seconds: machines that are busy start processes far apart


def joined(args: Sequence[str], timeout: float = TIMEOUT) -> tuple[int, int, list[str]]:
    """Join the group; returns rank, size, and the arguments that are left."""
    rest = list(args)
    backend = None
    if rest[:1] == ["--backend"]:
        backend, rest = rest[1], rest[2:]
    if backend == "torchft":  # the others are met, as a Trainer does it
        count = int(os.environ.pop("WORLD_SIZE"))
        os.environ["LOCAL_RANK"] = os.environ.pop("RANK")
        dl.distributed.init_process_group(backend, timeout=timeout)
        group = world.world()
        assert isinstance(group, ElasticGroup)
        while group.size() < count:
            group.meet(group.ask(0))
            time.sleep(0.05)
    else:
        dl.distributed.init_process_group(backend, timeout=timeout)
    return dl.distributed.get_rank(), dl.distributed.get_world_size(), rest


def refused(name: str, kind: type[Exception], text: str, call: Callable[[], Any]) -> None:
    """Assert that a call raises an error that says this."""
    try:
        call()
    except kind as error:
        said = str(error)
    else:
        raise AssertionError(f"{name} was not refused")
    assert text in said, (name, said)
