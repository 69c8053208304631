"""Ranks from the variables of launchers, and from arguments."""

from __future__ import annotations

import pytest

from dl4all.distributed.process_group.launch_variables import Membership, membership
from dl4all.errors import ArgumentError

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
PLACE = {"MASTER_ADDR": "host-a", "MASTER_PORT": "4711"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({**TORCHRUN, **PLACE}, Membership(3, 4, 1, 2, "host-a", 4711)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Membership(0, 1, 0, 1, "127.0.0.1", 29500)),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
            Membership(1, 2, 1, 2, "127.0.0.1", 29500),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "3", **PLACE}, Membership(1, 3, 0, 1, "host-a", 4711)),
        (
            {
                "SLURM_PROCID": "5",
                "SLURM_NTASKS": "6",
                "SLURM_LOCALID": "1",
                "SLURM_NTASKS_PER_NODE": "2(x3)",
                "SLURM_JOB_NODELIST": "rack1-gpu[07-09,11],other",
            },
            Membership(5, 6, 1, 2, "rack1-gpu07", 29500),
        ),
    ],
)
def test_variables_of_launchers(variables: dict[str, str], expected: Membership) -> None:
    assert membership(environment=variables) == expected


def test_arguments_go_before_variables() -> None:
    found = membership(2, 8, "[::1]:99", {**TORCHRUN, **PLACE})
    assert found == Membership(2, 8, 1, 2, "::1", 99)


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        ((-1, -1, None), {}, r"RANK and WORLD_SIZE \(torchrun\); .*OMPI.*`dl4all launch -n 2 SCRIPT`"),
        ((0, -1, None), {}, "nothing tells the rank"),
        ((4, 4, None), {}, "from 0 to 3 for 4 processes, got 4"),
        (
            (-1, -1, None),
            {**PLACE, "RANK": "two", "WORLD_SIZE": "4"},
            "a number in the variable RANK, got 'two'",
        ),
        ((-1, -1, None), TORCHRUN, "set MASTER_ADDR"),
        ((0, 2, "nowhere"), {}, "expected init_method='tcp://host:port', got 'nowhere'"),
    ],
)
def test_bad_launches(
    arguments: tuple[int, int, str | None], variables: dict[str, str], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        membership(*arguments, variables)
