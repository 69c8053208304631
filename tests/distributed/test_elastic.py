"""Training that goes on without processes that end, and with those that come."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dl4all as dl
from dl4all.cli.processes import supervisor
from dl4all.cli.processes.launch import launch
from dl4all.distributed.process_group import world
from dl4all.distributed.process_group.elastic_group import ElasticGroup
from dl4all.errors import ArgumentError, BackendMissingError, DistNetworkError
from tests.distributed import elastic_program
from tests.distributed.processes import LIMIT, ROOT, free_port, launched

pytestmark = pytest.mark.skipif(find_spec("torchft") is None, reason="the extra ft is for Linux on x86-64")

KILLED = ["exchange", "committed:doubt", "forward:lighthouse", "saving"]
"""Stages of a step, each of which ends a process, or the lighthouse."""

ALL = [
    *KILLED,
    *(
        "loading",
        "reduce",
        "update",
        "forward",
        "backward",
        "bucket",
        "exchanged",
        "commit",
        "committed",
        "step",
        "validation",
    ),
    *("commit:doubt", "validation:doubt", "forward:stop", "reduce:stop", "loading:lighthouse", "saving:full"),
]


def compared(folder: Path, options: dict[str, Any], limit: float = LIMIT) -> str:
    """Train with processes that end, and compare them with one that goes on; returns their output."""
    elastic_program.train(folder, {**options, "stages": []}, distributed=False)
    count = elastic_program.COUNT
    ended = launched(
        ["--elastic", "-n", str(count), "--max-restarts", str(len(options["stages"]))],
        [str(Path(elastic_program.__file__)), str(folder), json.dumps(options)],
        limit,
    )
    assert ended.status == 0, ended.output
    assert len(list(folder.glob("end-*"))) == len(options["stages"]), ended.output
    expected, rows = np.load(folder / "alone.npy"), json.loads((folder / "alone.json").read_text())
    found = [np.load(folder / f"{rank}.npy") for rank in range(count)]
    assert np.linalg.norm(found[0] - expected) <= 1e-6 * np.linalg.norm(expected), ended.output
    for rank in range(count):
        assert np.array_equal(found[0], found[rank])
        theirs = json.loads((folder / f"{rank}.json").read_text())
        assert len(theirs) == len(rows)
        # Sums over all samples: none is lost or counted twice. Within one process, first weights that differ
        # by 1e-7 of themselves lead to losses that differ by 2.2e-5; a lost sample is some 1e-2 of a loss.
        for ours, own in zip(rows, theirs, strict=True):
            assert own == pytest.approx(ours, rel=5e-5, abs=2e-6)
    written = (folder / "elastic" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in written] == list(range(1, options["epochs"] + 1))
    return ended.output


def test_no_step_is_lost_where_processes_end(tmp_path: Path) -> None:
    said = compared(tmp_path, {"epochs": 30, "stages": KILLED})
    assert said.count("is started again") == sum(":" not in stage for stage in KILLED)
    assert "is computed anew" in said


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 3])
def test_every_stage_of_a_step(tmp_path: Path, accumulate: int) -> None:
    """With a small learning rate, as rounding would grow over so many steps."""
    compared(tmp_path, {"epochs": 160, "stages": ALL, "accumulate": accumulate, "lr": 0.005}, limit=600)


@pytest.mark.full
@pytest.mark.slow
def test_a_hundred_failures(tmp_path: Path) -> None:
    stages = [ALL[number % 15] for number in range(100)]
    compared(tmp_path, {"epochs": 600, "stages": stages, "lr": 0.002}, limit=1500)


@contextlib.contextmanager
def linked_hosts() -> Iterator[tuple[str, str]]:
    """Two network namespaces with a link between them, 10.77.1.1 and 10.77.1.2."""
    names = f"dl4all-{os.getpid()}-a", f"dl4all-{os.getpid()}-b"
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        peer = ["type", "veth", "peer", "name", "link0", "netns", names[1]]
        subprocess.run(["ip", "link", "add", "link0", "netns", names[0], *peer], check=True)
        for number, name in enumerate(names, 1):
            subprocess.run(
                ["ip", "-n", name, "addr", "add", f"10.77.1.{number}/24", "dev", "link0"], check=True
            )
            subprocess.run(["ip", "-n", name, "link", "set", "link0", "up"], check=True)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="namespaces need root, and ip")
def test_a_cut_link(tmp_path: Path) -> None:
    """The host with the lighthouse goes on alone; the other one joins again when the link is back."""
    options = {"epochs": 80, "stages": ["never"], "lr": 0.002}  # epochs take a second each
    elastic_program.train(tmp_path, {**options, "stages": []}, distributed=False)
    running: list[subprocess.Popen[bytes]] = []
    with linked_hosts() as names:
        try:
            for number, name in enumerate(names):
                folder = tmp_path / name
                folder.mkdir()
                command = ["ip", "netns", "exec", name, sys.executable, "-m", "dl4all", "launch", "--elastic"]
                command += ["--node-rank", str(number), "--rdzv-endpoint", "10.77.1.1:29510"]
                command += ["--max-restarts", "50", elastic_program.__file__, str(folder)]
                environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
                with (tmp_path / f"{name}.log").open("w") as log:  # a pipe that nobody reads would fill up
                    running.append(
                        subprocess.Popen([*command, json.dumps(options)], env=environment, stderr=log)
                    )
            time.sleep(15)
            subprocess.run(["ip", "-n", names[1], "link", "set", "link0", "down"], check=True)
            time.sleep(20)
            subprocess.run(["ip", "-n", names[1], "link", "set", "link0", "up"], check=True)
            for process in running:
                process.wait(LIMIT)
            said = [(tmp_path / f"{name}.log").read_text() for name in names]
            assert [process.returncode for process in running] == [0, 0], said
        finally:
            for process in running:
                process.terminate()
                process.wait()
    assert "is started again" in said[1]  # whether the cut met a step of the first one is chance
    assert not any("[INFO]" in text for text in said)  # torchft's own log
    expected, first, second = (np.load(tmp_path / f) for f in ("alone.npy", *(f"{n}/0.npy" for n in names)))
    assert np.array_equal(first, second)
    assert np.linalg.norm(first - expected) <= 1e-6 * np.linalg.norm(expected)


@pytest.mark.full
def test_a_process_that_differs_ends_alone(tmp_path: Path) -> None:
    # Epochs wait for a third process, which does not come: so the second one meets the first.
    options = json.dumps({"epochs": 6, "stages": ["never"], "odd": 1})
    script = [str(Path(elastic_program.__file__)), str(tmp_path), options]
    ended = launched(
        ["--elastic", "-n", "2", "--max-restarts", "0", "--log-dir", str(tmp_path / "logs")], script
    )
    assert ended.status == 1
    assert ended.output.count("is given up, with status 1") == 1
    said = [
        (tmp_path / "logs" / f"0-{rank}.log").read_text() for rank in (0, 1)
    ]  # whoever came first goes on
    assert sorted("complete" in one for one in said) == [False, True]
    assert sum("cannot join the others" in one and "model: conv.weight is" in one for one in said) == 1


# One process


@contextlib.contextmanager
def lighthouse() -> Iterator[str]:
    """The address of a lighthouse."""
    from dl4all.cli.processes.lighthouse import serve

    server = serve("127.0.0.1:0")
    try:
        yield f"http://127.0.0.1:{server.address().rpartition(':')[2]}"
    finally:
        server.shutdown()


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[ElasticGroup]:
    """The elastic group of this process."""
    with lighthouse() as url:
        monkeypatch.setenv("TORCHFT_LIGHTHOUSE", url)
        dl.distributed.init_process_group(timeout=5)
        made = world.world()
        assert isinstance(made, ElasticGroup)
        try:
            yield made
        finally:
            dl.distributed.destroy_process_group()


def trained(loader: Any, **options: Any) -> tuple[dl.Trainer, list[dict[str, Any]]]:
    dl.manual_seed(0)
    net = dl.nn.Sequential(dl.nn.Linear(2, 8), dl.nn.Dropout(0.2), dl.nn.Tanh(), dl.nn.Linear(8, 1))
    optimizer = dl.optim.Adam(net.parameters(), lr=0.05)
    made = dl.Trainer(net, dl.nn.MSELoss(), optimizer, device="cpu", progress=False, **options)
    return made, made.fit(loader, epochs=4).rows


def xor() -> dl.data.DataLoader:
    return dl.data.DataLoader(dl.data.xor(), 3, shuffle=True, device=None)


def test_one_process_trains_as_without(group: ElasticGroup, tmp_path: Path) -> None:
    alone, rows = trained(xor())
    made, found = trained(xor(), distributed=True, folder=tmp_path)
    for ours, theirs in zip(made.model.parameters(), alone.model.parameters(), strict=True):
        assert np.array_equal(ours.detach().numpy(), theirs.detach().numpy())
    assert found == [pytest.approx(row, rel=1e-12) for row in rows]
    assert made.evaluate(xor()) == pytest.approx(alone.evaluate(xor()), rel=1e-6)
    more = made.fit(xor(), epochs=6).rows  # goes on
    assert len(more) == 6
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 6
    with pytest.raises(ArgumentError, match="an elastic launch trains one model"):
        trained(xor(), distributed=True)


def test_folders_of_other_runs_are_left_alone(group: ElasticGroup, tmp_path: Path) -> None:
    trained(xor(), folder=tmp_path)
    with pytest.raises(ArgumentError, match="checkpoints of an earlier run"):
        trained(xor(), distributed=True, folder=tmp_path)


def test_members_come_and_go_but_no_parts(group: ElasticGroup) -> None:
    d = dl.distributed
    assert (d.get_rank(), d.get_world_size(), d.get_backend()) == (0, 1, "torchft")
    assert group.meet(group.ask(0))
    assert not group.meet(group.ask(1))
    assert group.meet(group.ask(1, failures=1))  # the connections are others
    x = dl.ones(2)
    d.all_reduce(x)
    assert x.tolist() == [1, 1]
    with pytest.raises(ArgumentError, match="no groups of some of them"):
        d.new_group([0])
    with pytest.raises(ArgumentError, match="an elastic launch trains one model"):
        dl.nn.parallel.DistributedDataParallel(dl.nn.Linear(1, 1).to("cpu"))


def test_bad_trainers(group: ElasticGroup) -> None:
    with pytest.raises(ArgumentError, match=r"take a dl.data.DataLoader with a len\(\), got list"):
        trained([(dl.ones(1, 2), dl.ones(1, 1))], distributed=True)
    with pytest.raises(ArgumentError, match="leave out sync_every"):
        trained(xor(), distributed=True, sync_every=2)
    for options in ({"sync_every": 0, "distributed": True}, {"sync_every": 2}):
        with pytest.raises(ArgumentError, match="sync_every must be at least 1, and needs distributed=True"):
            trained(xor(), **options)
    net = dl.nn.Linear(2, 1)
    spread = dl.optim.ZeroRedundancyOptimizer(net.parameters(), dl.optim.SGD, lr=0.1)
    with pytest.raises(ArgumentError, match="keeps parts of its state in each process"):
        dl.Trainer(net, dl.nn.MSELoss(), spread, device="cpu", distributed=True)


def test_tries_are_counted(group: ElasticGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise DistNetworkError("[test] the network is gone")

    monkeypatch.setattr("dl4all.training.elastic.merged", fail)
    # PyTorch's store asks a name server for the address of each connection: where that does not answer in
    # time, a try fails before it gets here, and the last one may.
    with pytest.raises(DistNetworkError, match=r"the network is gone|cannot be connected"):
        trained(xor(), distributed=True)


def test_a_lighthouse_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHFT_LIGHTHOUSE", f"http://127.0.0.1:{free_port()}")
    dl.distributed.init_process_group(timeout=0.3)
    try:
        with pytest.raises(DistNetworkError, match=r"the lighthouse at http://127.0.0.1:.* did not answer"):
            trained(xor(), distributed=True)
    finally:
        dl.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        (
            None,
            {"backend": "torchft"},
            "ranks follow from who is there: expected the variable TORCHFT_LIGHTHOUSE",
        ),
        ("http://127.0.0.1:1", {"rank": 0, "world_size": 1}, "neither rank nor world_size"),
        ("http://no such host:1", {}, "expected the lighthouse's address"),
        ("nonsense", {}, "expected the lighthouse's address"),
    ],
)
def test_bad_groups(
    url: str | None, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHFT_LIGHTHOUSE", raising=False)
    if url is not None:
        monkeypatch.setenv("TORCHFT_LIGHTHOUSE", url)
    with pytest.raises(ArgumentError, match=message):
        dl.distributed.init_process_group(**options)
    assert not dl.distributed.is_initialized()


# The launcher


@pytest.mark.parametrize(
    "arguments",
    [["--nnodes", "2"], ["--node-rank", "1"], ["--rdzv-endpoint", "127.0.0.1:1"]],
)
def test_bad_launches(arguments: list[str]) -> None:
    found = CliRunner().invoke(launch, ["--elastic", *arguments, __file__])
    assert isinstance(found.exception, ArgumentError)
    assert "leave out --nnodes, and give every host a --node-rank" in str(found.exception)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "find_spec", lambda name: None)
    found = CliRunner().invoke(launch, ["--elastic", __file__])
    assert isinstance(found.exception, BackendMissingError)
    assert "pip install 'torchft<" in str(found.exception)


def test_restarts_statuses_and_logs(tmp_path: Path) -> None:
    """One process fails always, one until it is started again."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "number = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "print('process', os.environ['LOCAL_RANK'], 'of', os.environ['LOCAL_WORLD_SIZE'], 'try', number)\n"
        "sys.exit({'0': 5, '1': 6 * (number < 1)}[os.environ['LOCAL_RANK']])\n"
    )
    ended = launched(
        ["--elastic", "-n", "1", "--max-restarts", "2", "--log-dir", str(tmp_path / "a")], [str(script)]
    )
    assert ended.status == 5
    assert (tmp_path / "a" / "0-0.log").read_text().count("process 0 of 1 try") == 3
    assert "process 0 of host 0 has ended with status 5 and is started again (2)" in ended.output
    assert "process 0 of host 0 is given up, with status 5" in ended.output


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import time\ntime.sleep(100)\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = launched(["--elastic", "--node-rank", "0", "--rdzv-endpoint", endpoint], [str(script)])
    assert ended.status == 1
    assert "the lighthouse cannot serve at its address" in ended.output


def test_signals_end_all(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, time\nprint('here', os.getpid(), flush=True)\ntime.sleep(100)\n")
    started = subprocess.Popen(
        [sys.executable, "-m", "dl4all", "launch", "--elastic", "-n", "2", str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    try:
        lines = [started.stdout.readline() for _ in range(2)]
        assert all(line.startswith("here ") for line in lines), (lines, started.poll())
        pids = [int(line.split()[1]) for line in lines]
        started.send_signal(signal.SIGTERM)
        assert started.wait(LIMIT) == 128 + signal.SIGTERM
    finally:
        started.kill()
        started.wait()
        started.stdout.close()
    end = time.monotonic() + LIMIT
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_processes_end_with_their_launcher(tmp_path: Path) -> None:
    """However that ends."""
    script = tmp_path / "script.py"
    script.write_text("import os, time\nprint('here', os.getpid(), flush=True)\ntime.sleep(100)\n")
    started = subprocess.Popen(
        [sys.executable, "-m", "dl4all", "launch", "--elastic", str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    pid = int(started.stdout.readline().split()[1])
    started.kill()
    started.wait()
    started.stdout.close()
    end = time.monotonic() + LIMIT
    while Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < end
        time.sleep(0.05)
