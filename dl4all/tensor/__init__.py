"""Tensors: what people hold in their hands."""

from __future__ import annotations

from dl4all.ops.sorting import TopK, topk
from dl4all.tensor.creation import (
    empty,
    from_dlpack,
    from_numpy,
    full,
    manual_seed,
    ones,
    rand,
    randn,
    tensor,
    zeros,
)
from dl4all.tensor.random import (
    bernoulli,
    get_rng_state,
    initial_seed,
    multinomial,
    normal,
    randint,
    randperm,
    seed,
    set_rng_state,
)
from dl4all.tensor.ranges import (
    arange,
    empty_like,
    eye,
    full_like,
    linspace,
    logspace,
    meshgrid,
    ones_like,
    rand_like,
    randn_like,
    zeros_like,
)
from dl4all.tensor.tensor import Tensor

__all__ = [
    "Tensor",
    "TopK",
    "arange",
    "bernoulli",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "get_rng_state",
    "initial_seed",
    "linspace",
    "logspace",
    "manual_seed",
    "meshgrid",
    "multinomial",
    "normal",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
    "seed",
    "set_rng_state",
    "tensor",
    "topk",
    "zeros",
    "zeros_like",
]
