"""Processes that come and go, as torchft's lighthouse sees them, over gloo."""

from __future__ import annotations

import os
import socket
import time
import uuid
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import torch.distributed as torch_distributed

os.environ.setdefault("RUST_LOG", "error")  # else torchft's log says every heartbeat
from torchft.coordination import ManagerClient, ManagerServer

from dl4all.distributed.process_group.elastic_group import ElasticGroup, Quorum
from dl4all.distributed.process_group.gloo import GlooTransport
from dl4all.distributed.process_group.launch_variables import LIGHTHOUSE, Membership
from dl4all.errors import ArgumentError, DistNetworkError

dist: Any = torch_distributed  # its stubs do not know of stores

HEARTBEAT = timedelta(milliseconds=100)
"""The time between two signs of life, which a thread outside Python gives."""

PATIENCE = timedelta(seconds=2)
"""The time after which a question is asked again: the lighthouse may be another one meanwhile."""

NAMING = timedelta(seconds=30)
"""The time that a process's connection to its own store may take at least."""

PAUSE = 0.2  # seconds between two questions that fail at once


def connected(
    rank: int, world_size: int, address: str | None, timeout: timedelta
) -> tuple[ElasticGroup, Membership]:
    """A group that is this process alone until it first meets others, and the part of this one.

    Raises:
        ArgumentError: nothing names the lighthouse, or a rank is given.
    """
    given = address or os.environ.get(LIGHTHOUSE)
    if not given or rank >= 0 or world_size >= 0:
        raise ArgumentError(
            f"[init_process_group] with torchft, ranks follow from who is there: expected the variable "
            f"{LIGHTHOUSE} with the lighthouse's address, such as http://host-a:29510, and neither rank nor "
            "world_size. Start the script by `dl4all launch --elastic -n 2 SCRIPT`"
        )
    given = given if "//" in given else f"http://{given}"
    lighthouse = TorchftLighthouse(given, timeout)
    local = [
        int(os.environ.get(name, default)) for name, default in (("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1))
    ]
    parts = urlsplit(given)
    member = Membership(0, 1, local[0], local[1], parts.hostname or "", parts.port or 0)
    return ElasticGroup(lighthouse, timeout), member


class TorchftLighthouse:
    """A member of torchft's quorums.

    Args:
        url: of the lighthouse.
        timeout: after which an answer is given up.
    """

    def __init__(self, url: str, timeout: timedelta) -> None:
        self._url, self._timeout, self._host = url, timeout, _own_address(url)
        self._device = dist.ProcessGroupGloo.create_device(hostname=self._host)
        # The store connects to itself, and asks a name server about that, which may take its time.
        patient = max(timeout, NAMING)
        self._store = dist.TCPStore(self._host, 0, is_master=True, wait_for_workers=False, timeout=patient)
        self._store.set_timeout(timeout)
        self._server: ManagerServer | None = None

    def _member(self) -> ManagerClient:
        """The connection to the lighthouse, which from then on knows that this process is there."""
        if self._server is None:
            # Ranks are in the order of the names: those of a launch, as their launcher counts them.
            name = [os.environ.get(part, "0").zfill(4) for part in ("GROUP_RANK", "LOCAL_RANK")]
            self._server = ManagerServer(
                replica_id=f"{'-'.join(name)}:{uuid.uuid4()}",
                lighthouse_addr=self._url,
                hostname=self._host,
                bind=f"{self._host}:0",
                store_addr=f"{self._host}:{self._store.port}",
                world_size=1,
                heartbeat_interval=HEARTBEAT,
                connect_timeout=self._timeout,
                quorum_retries=0,
            )
            self._client = ManagerClient(self._server.address(), connect_timeout=self._timeout)
        return self._client

    def quorum(self, step: int, failures: int) -> Quorum:
        seen = time.monotonic()
        while True:
            try:
                found = self._member()._quorum(
                    group_rank=0,
                    step=step,
                    checkpoint_metadata="",
                    shrink_only=False,
                    timeout=PATIENCE,
                    commit_failures=failures,
                    init_sync=False,
                )
            except Exception as error:
                if self._answers():  # others are not done with their step
                    seen = time.monotonic()
                elif time.monotonic() > seen + self._timeout.total_seconds():
                    raise DistNetworkError(
                        f"[ProcessGroup] the lighthouse at {self._url} did not answer within "
                        f"{self._timeout.total_seconds():g} seconds: {error}"
                    ) from error
                time.sleep(PAUSE)
            else:
                rank, world_size = found.replica_rank, found.replica_world_size
                return Quorum(found.quorum_id, rank, world_size, found.store_address)

    def _answers(self) -> bool:
        """Whether there is a lighthouse."""
        parts = urlsplit(self._url)
        try:
            socket.create_connection((parts.hostname, parts.port), PATIENCE.total_seconds()).close()
        except OSError:
            return False
        return True

    def transport(self, quorum: Quorum, name: str) -> GlooTransport:
        host, _, port = quorum.address.rpartition(":")
        there = dist.TCPStore(host, int(port), is_master=False, timeout=self._timeout)
        store = dist.PrefixStore(f"{quorum.number}/{name}", there)
        return self._connected(store, quorum.rank, quorum.world_size)

    def alone(self) -> GlooTransport:
        return self._connected(dist.HashStore(), 0, 1)

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()

    def _connected(self, store: Any, rank: int, world_size: int) -> GlooTransport:
        options = dist.ProcessGroupGloo._Options()
        options._devices, options._timeout = [self._device], self._timeout
        return GlooTransport(dist.ProcessGroupGloo(store, rank, world_size, options))


def _own_address(url: str) -> str:
    """The address of this host on the way to the lighthouse, at which the others reach it.

    Raises:
        ArgumentError: the URL names no host and port.
    """
    parts = urlsplit(url)
    try:
        target = parts.hostname or "", parts.port or 0
        family = socket.getaddrinfo(*target, type=socket.SOCK_DGRAM)[0][0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # sends nothing
            address: str = probe.getsockname()[0]
            return address
    except (OSError, ValueError) as error:
        raise ArgumentError(
            f"[init_process_group] expected the lighthouse's address, such as http://host-a:29510, in "
            f"{LIGHTHOUSE}, got {url!r}: {error}"
        ) from error
