"""Estimators that find their networks themselves, for tables, pictures and series (extra ``automl``).

estimators.py               AutoClassifier and AutoRegressor: the search, and what it found
├── samples.py              samples from files
├── features.py, targets.py numbers that networks are given of samples, and what they learn to say
├── networks.py, layers.py  the space of networks, and the source of each
├── training.py             one training with given settings
├── cross_validation.py     one trial: a training for each fold
├── ensemble.py             which networks are taken together
├── report.py               the page with plots
└── winner.py               the best network, and the script that trains it again
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dl4all.lazy_names import lazy_names

if TYPE_CHECKING:
    from dl4all.automl.ensemble import greedy_selection
    from dl4all.automl.estimators import AutoClassifier, AutoRegressor, load
    from dl4all.automl.features import ChannelScaler, table_features
    from dl4all.automl.layers import LastState, PeriodicEmbedding, Residual
    from dl4all.automl.networks import NetworkSpace, source, training_settings
    from dl4all.automl.samples import LabelledSamples, is_classification, read, windows
    from dl4all.automl.targets import ClassTargets, NumberTargets
    from dl4all.automl.training import TrainingSettings, outputs, train

MODULES = {
    "AutoClassifier": "estimators",
    "AutoRegressor": "estimators",
    "ChannelScaler": "features",
    "ClassTargets": "targets",
    "LabelledSamples": "samples",
    "LastState": "layers",
    "NetworkSpace": "networks",
    "NumberTargets": "targets",
    "PeriodicEmbedding": "layers",
    "Residual": "layers",
    "TrainingSettings": "training",
    "greedy_selection": "ensemble",
    "is_classification": "samples",
    "load": "estimators",
    "outputs": "training",
    "read": "samples",
    "source": "networks",
    "table_features": "features",
    "train": "training",
    "training_settings": "networks",
    "windows": "samples",
}
__all__ = [
    "AutoClassifier",
    "AutoRegressor",
    "ChannelScaler",
    "ClassTargets",
    "LabelledSamples",
    "LastState",
    "NetworkSpace",
    "NumberTargets",
    "PeriodicEmbedding",
    "Residual",
    "TrainingSettings",
    "greedy_selection",
    "is_classification",
    "load",
    "outputs",
    "read",
    "source",
    "table_features",
    "train",
    "training_settings",
    "windows",
]
__getattr__ = lazy_names(__name__, MODULES, extra="automl")
