"""Learning to learn, under learn2learn's names.

├── maml.py       MAML, ANIL, MetaSGD: gradients through the steps by which a learner adapts
├── reptile.py    Reptile: towards what learners have become
├── metric.py     ProtoNet, MatchingNet: distances to a few examples
└── tasks.py      TaskSampler: tasks of few classes and few examples from any labelled data set
"""

from __future__ import annotations

from dl4all.meta.maml import ANIL, MAML, Learner, MetaSGD, TaskLosses
from dl4all.meta.metric import MatchingNet, ProtoNet
from dl4all.meta.reptile import Reptile
from dl4all.meta.tasks import FewShotTask, TaskSampler

__all__ = [
    "ANIL",
    "MAML",
    "FewShotTask",
    "Learner",
    "MatchingNet",
    "MetaSGD",
    "ProtoNet",
    "Reptile",
    "TaskLosses",
    "TaskSampler",
]
