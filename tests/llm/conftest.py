"""Folders of models, which are written once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.llm.models import written

IDX = np.random.default_rng(0).integers(3, 97, (2, 21))
"""Tokens that every model is asked for."""

Folders = Callable[[str], tuple[Path, npt.NDArray[np.float32]]]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """The folder of a configuration's model, and its scores of :data:`IDX` by transformers."""

    @functools.cache
    def folder_of(name: str) -> tuple[Path, npt.NDArray[np.float32]]:
        folder = tmp_path_factory.mktemp(name)
        model = written(name, folder)
        with torch.no_grad():
            return folder, model(torch.from_numpy(IDX)).logits.numpy()

    return folder_of
