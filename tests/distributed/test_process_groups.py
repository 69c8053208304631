"""Groups of processes: collectives over both transports, a group of one, and what cannot be joined."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, BackendMissingError, DistError, DistNetworkError, ShapeError
from dl4all.scheduler.monitor import publisher
from tests.distributed.processes import ROOT, command, free_port, run_mpi, run_ranks, variables


def test_collectives_over_gloo() -> None:
    for ended in run_ranks(3, "collectives"):
        assert (ended.status, "complete" in ended.output) == (0, True), ended.output


def test_collectives_over_mpi() -> None:
    ended = run_mpi(2, "collectives")
    assert ended.status == 0, ended.output
    assert ended.output.count("complete") == 2


@pytest.mark.skipif(find_spec("torchft") is None, reason="the extra ft is for Linux on x86-64")
def test_collectives_over_torchft(monkeypatch: pytest.MonkeyPatch) -> None:
    from dl4all.cli.processes.lighthouse import serve

    server = serve("127.0.0.1:0")
    port = server.address().rpartition(":")[2]
    monkeypatch.setenv("TORCHFT_LIGHTHOUSE", f"http://127.0.0.1:{port}")
    for ended in run_ranks(3, "collectives", "--backend", "torchft"):
        assert (ended.status, "complete" in ended.output) == (0, True), ended.output
    server.shutdown()


def test_processes_that_differ_say_so_in_all_of_them() -> None:
    for ended in run_ranks(2, "differ"):
        assert (ended.status, "complete" in ended.output) == (0, True), ended.output


def test_a_group_of_one() -> None:
    d = dl.distributed
    d.init_process_group(rank=0, world_size=1, init_method=f"tcp://127.0.0.1:{free_port()}")
    try:
        assert publisher.rank == "0/1"
        with pytest.raises(DistError, match="there is a group already"):
            d.init_process_group(rank=0, world_size=1)
        x = dl.tensor([3.0, 5.0], device="cpu")
        collectives: list[Callable[[], Any]] = [
            lambda: d.all_reduce(x, d.ReduceOp.AVG),
            lambda: d.broadcast(x, 0),
            lambda: d.reduce(x, 0),
            lambda: d.all_gather([x], x.clone()),
            lambda: d.gather(x.clone(), [x]),
            lambda: d.scatter(x, [x.clone()]),
            lambda: d.reduce_scatter(x, [x.clone()]),
            lambda: d.all_gather_into_tensor(x, x.clone()),
        ]
        for collective in collectives:
            collective()
            assert x.tolist() == [3.0, 5.0]
        array: Any = np.ones(2)
        text: Any = "sum"
        refused: list[tuple[str, Callable[[], Any]]] = [
            ("AVG needs floats", lambda: d.all_reduce(dl.arange(3), d.ReduceOp.AVG)),
            ("combines the bits of ints", lambda: d.all_reduce(x, d.ReduceOp.BOR)),
            ("expected floats or ints, got bool", lambda: d.all_reduce(dl.ones(2, dtype=dl.bool_))),
            ("expected a tensor, got ndarray", lambda: d.all_reduce(array)),
            ("expected an op", lambda: d.all_reduce(x, text)),
            ("rank 1 is not in the group", lambda: d.broadcast(x, 1)),
            ("rank 0 is this process", lambda: d.send(x, 0)),
            ("belongs to rank 0 alone, and is missing", lambda: d.gather(x)),
            ("different ranks", lambda: d.new_group([0, 0])),
            ("the backend of all processes, 'gloo', got 'mpi'", lambda: d.new_group(backend="mpi")),
        ]
        for message, call in refused:
            with pytest.raises(ArgumentError, match=message):
                call()
        with pytest.raises(ShapeError, match=r"expected 1 tensors, each float32 of shape \(2,\)"):
            d.all_gather([dl.zeros(3)], x)
        with pytest.raises(ShapeError, match="contiguous tensor of 1 times"):
            d.all_gather_into_tensor(dl.zeros(3), x)
        layer = dl.nn.Linear(2, 1).to("cpu")
        net = dl.nn.parallel.DistributedDataParallel(layer)
        with net.no_sync():
            net(x).sum().backward()
        net(x).sum().backward()
        net.reduce_gradients()
        assert layer.weight.grad.tolist() == [[6.0, 10.0]]
    finally:
        d.destroy_process_group()
    assert not d.is_initialized()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"backend": "pigeons"}, ArgumentError, "'gloo' or 'mpi' or 'torchft', got 'pigeons'"),
        ({"timeout": 0}, ArgumentError, "more than 0 seconds"),
        ({"init_method": "file:///x"}, ArgumentError, "'env://' or 'tcp://host:port'"),
        (
            {"rank": 0, "world_size": 2, "init_method": "tcp://127.0.0.1:{port}"},
            DistNetworkError,
            "1/2 clients",
        ),
        (
            {"rank": 1, "world_size": 2, "init_method": "tcp://127.0.0.1:{port}"},
            DistNetworkError,
            "MASTER_ADDR",
        ),
        (
            {"rank": 1, "world_size": 2, "init_method": "tcp://no.such.host:1"},
            DistNetworkError,
            "no.such.host",
        ),
    ],
)
def test_groups_that_do_not_come_together(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    given = {"timeout": datetime.timedelta(seconds=1.5), **arguments}
    given = {k: v.replace("{port}", str(free_port())) if isinstance(v, str) else v for k, v in given.items()}
    with pytest.raises(error, match=message):
        dl.distributed.init_process_group(**given)  # type: ignore[arg-type]
    assert not dl.distributed.is_initialized()


def test_a_taken_port_is_named() -> None:
    import socket

    with socket.socket() as listening:
        listening.bind(("0.0.0.0", 0))  # as the store of rank 0 does
        listening.listen()
        port = listening.getsockname()[1]
        with pytest.raises(DistNetworkError, match=rf":{port} .*MASTER_PORT a port that is free"):
            dl.distributed.init_process_group(
                rank=0, world_size=2, init_method=f"tcp://127.0.0.1:{port}", timeout=2
            )


@pytest.mark.parametrize(("backend", "package"), [("gloo", "torch"), ("mpi", "mpi4py")])
def test_a_missing_package_is_named(backend: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BackendMissingError, match=rf"needs {package}: pip install '{package}[<>]"):
        dl.distributed.init_process_group(backend, rank=0, world_size=1)


def test_questions_without_a_group() -> None:
    for call in (dl.distributed.get_rank, dl.distributed.barrier, dl.distributed.get_backend):
        with pytest.raises(DistError, match=r"call dl\.distributed\.init_process_group\(\)"):
            call()
    with pytest.raises(DistError, match="there is no group of processes"):
        dl.nn.parallel.DistributedDataParallel(dl.nn.Linear(2, 2))
    dl.distributed.destroy_process_group()


def test_an_import_loads_no_transport() -> None:
    script = "import dl4all as dl, sys; dl.nn, dl.distributed; print({'torch', 'mpi4py'} & set(sys.modules))"
    environment = {k: v for k, v in os.environ.items() if k != "RANK"}
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, env=environment, check=True
    )
    assert found.stdout.strip() == "set()"


def test_mpi_counts_for_itself() -> None:
    """Variables of another launcher around a process that MPI did not start."""
    ended = subprocess.run(
        command("collectives", "--backend", "mpi"),
        env=variables(1, 2, free_port()),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    assert "MPI counts rank 0 of 1, RANK and WORLD_SIZE say 1 of 2" in ended.stderr
