"""Optimizers and learning rate schedulers with PyTorch's names, options and state."""

from __future__ import annotations

from dl4all.ops.elementwise import joined as joined
from dl4all.optim import lr_scheduler, swa_utils
from dl4all.optim.adadelta import Adadelta
from dl4all.optim.adafactor import Adafactor
from dl4all.optim.adagrad import Adagrad
from dl4all.optim.adam import Adam, AdamW
from dl4all.optim.adamax import Adamax
from dl4all.optim.asgd import ASGD
from dl4all.optim.ema import EMA
from dl4all.optim.lbfgs import LBFGS
from dl4all.optim.lion import Lion
from dl4all.optim.muon import Muon
from dl4all.optim.nadam import NAdam
from dl4all.optim.optimizer import Optimizer
from dl4all.optim.radam import RAdam
from dl4all.optim.rmsprop import RMSprop
from dl4all.optim.rprop import Rprop
from dl4all.optim.sgd import SGD
from dl4all.optim.sparse_adam import SparseAdam
from dl4all.optim.state.zero_redundancy import ZeroRedundancyOptimizer
from dl4all.optim.step import foreign as foreign
from dl4all.optim.step import gradient_scale as gradient_scale

__all__ = [
    "ASGD",
    "EMA",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "ZeroRedundancyOptimizer",
    "lr_scheduler",
    "swa_utils",
]
