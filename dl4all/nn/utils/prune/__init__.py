"""Weights of which some are kept at zero, as in ``torch.nn.utils.prune``, and networks without them."""

from dl4all.nn.utils.prune.compaction import compact as compact
from dl4all.nn.utils.prune.compaction import extend_to_norms as extend_to_norms
from dl4all.nn.utils.prune.masks import L1Unstructured as L1Unstructured
from dl4all.nn.utils.prune.masks import Pruning as Pruning
from dl4all.nn.utils.prune.masks import RandomUnstructured as RandomUnstructured
from dl4all.nn.utils.prune.masks import custom_from_mask as custom_from_mask
from dl4all.nn.utils.prune.masks import global_unstructured as global_unstructured
from dl4all.nn.utils.prune.masks import identity as identity
from dl4all.nn.utils.prune.masks import is_pruned as is_pruned
from dl4all.nn.utils.prune.masks import l1_unstructured as l1_unstructured
from dl4all.nn.utils.prune.masks import ln_structured as ln_structured
from dl4all.nn.utils.prune.masks import pruned_names as pruned_names
from dl4all.nn.utils.prune.masks import random_structured as random_structured
from dl4all.nn.utils.prune.masks import random_unstructured as random_unstructured
from dl4all.nn.utils.prune.masks import recompute as recompute
from dl4all.nn.utils.prune.masks import remove as remove
from dl4all.nn.utils.prune.masks import semi_structured as semi_structured
from dl4all.nn.utils.prune.masks import sparsity as sparsity
from dl4all.nn.utils.prune.sparsity_schedule import SparsityScheduler as SparsityScheduler

__all__ = [
    "L1Unstructured",
    "Pruning",
    "RandomUnstructured",
    "SparsityScheduler",
    "compact",
    "custom_from_mask",
    "extend_to_norms",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "pruned_names",
    "random_structured",
    "random_unstructured",
    "recompute",
    "remove",
    "semi_structured",
    "sparsity",
]
