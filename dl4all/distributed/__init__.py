"""Processes that compute together, of one host or of many, under PyTorch's names.

process_group/          who takes part, and how arrays of hosts get from one process to another
├── launch_variables.py     the rank, by torchrun's, Open MPI's, PMI's or SLURM's variables
├── transport.py            the interface of what carries arrays
├── gloo.py, mpi.py         what carries them
├── group.py                collectives on arrays
├── elastic_group.py        a group whose members come and go
├── torchft.py              how these are known, and connected
└── world.py                the group of all processes
membership.py           groups made, left, and asked who is in them
collectives.py          collectives on tensors of any device
merged_trace.py         one trace of the profiles of all processes
ownership.py            parameters shared out by their sizes
parameter_server/       asynchronous training: messages and a client; the server is in dl4all/training
"""

from __future__ import annotations

from dl4all.distributed.collectives import (
    all_gather,
    all_gather_into_tensor,
    all_gather_object,
    all_reduce,
    barrier,
    broadcast,
    broadcast_object_list,
    gather,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    send,
)
from dl4all.distributed.membership import (
    destroy_process_group,
    get_backend,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    new_group,
)
from dl4all.distributed.merged_trace import save_trace
from dl4all.distributed.parameter_server.client import ParameterClient
from dl4all.distributed.process_group.group import ProcessGroup
from dl4all.distributed.process_group.transport import ReduceOp
from dl4all.errors import DistError, DistNetworkError

__all__ = [
    "DistError",
    "DistNetworkError",
    "ParameterClient",
    "ProcessGroup",
    "ReduceOp",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "get_backend",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "init_process_group",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "new_group",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "save_trace",
    "scatter",
    "send",
]
