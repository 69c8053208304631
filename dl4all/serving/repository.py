"""A folder of models: ``NAME/config.toml`` and ``NAME/VERSION/`` with the model of that version.

A version holds one of: ``model.py``, whose function ``load()`` returns a module; ``model.toml``, the table
``[model]`` of a run file, beside ``model.safetensors``; or ``model.onnx``. Its code is the operator's, who
wrote the folder; nothing of it comes over the network.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import NamedTuple

from dl4all.errors import ConfigError
from dl4all.io.weights import load_weights
from dl4all.nn.module import Module
from dl4all.onnx.graph import ValueInfo
from dl4all.onnx.module import OnnxModule
from dl4all.onnx.module import load as load_onnx
from dl4all.serving.datatypes import DATATYPES
from dl4all.serving.model_config import NAME, ModelConfig, TensorSpec, read_model_config
from dl4all.serving.request_error import Reason, RequestError
from dl4all.training.config import MODELS, read_tables
from dl4all.training.recipe import network_of

FORMATS = ("model.py", "model.toml", "model.onnx")


class LoadedModel(NamedTuple):
    """A model of a repository."""

    version: str
    config: ModelConfig
    module: Module


class Repository:
    """The models of a folder, looked up anew each time.

    Raises:
        ConfigError: the folder is none.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ConfigError(f"[serve] {folder} is no folder")
        self.folder = folder.resolve()

    def names(self) -> list[str]:
        """The names of the models: of all folders with a ``config.toml``."""
        folders = (path for path in self.folder.iterdir() if (path / "config.toml").is_file())
        return sorted(path.name for path in folders if NAME.fullmatch(path.name))

    def newest(self, name: str) -> str:
        """The highest version of a model.

        Raises:
            RequestError: there is no such model.
            ConfigError: it has no version.
        """
        if name not in self.names():  # so that no name is a path
            raise RequestError(Reason.UNKNOWN, f"the repository has no model {name[:60]!r}")
        folder = self.folder / name
        versions = [path.name for path in folder.iterdir() if path.is_dir() and path.name.isdecimal()]
        if not versions:
            raise ConfigError(f"{folder}: there is no version; make a folder such as {name}/1 for the model")
        return max(versions, key=lambda version: (int(version), version))

    def load(self, name: str, version: str) -> LoadedModel:
        """Read a version of a model.

        Raises:
            Exception: whatever its files raise.
        """
        config = read_model_config(self.folder / name / "config.toml")
        folder = self.folder / name / version
        found = [file for file in FORMATS if (folder / file).is_file()]
        if len(found) != 1:
            raise ConfigError(f"{folder}: expected one of {', '.join(FORMATS)}, found {found or 'none'}")
        if found == ["model.onnx"]:
            model = load_onnx(folder / "model.onnx", "cpu")
            _check_names(model, config)
            return LoadedModel(version, _with_specs(config, model), model)
        if not config.inputs or not config.outputs:
            raise ConfigError(f"{self.folder / name / 'config.toml'}: [[inputs]] and [[outputs]] are missing")
        module: Module = _of_code(folder, name) if found == ["model.py"] else _of_table(folder, config)
        return LoadedModel(version, config, module)


def _of_code(folder: Path, name: str) -> Module:
    """The module that ``load()`` of ``model.py`` returns."""
    path = folder / "model.py"
    spec = importlib.util.spec_from_file_location(f"served_model_{name}_{folder.name}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path}: is no Python file")
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    load = getattr(code, "load", None)
    if not callable(load):
        raise ConfigError(f"{path}: expected a function load() that returns a module")
    module = load()
    if not isinstance(module, Module):
        raise ConfigError(f"{path}: load() returned {type(module).__name__}, expected a module")
    return module


def _of_table(folder: Path, config: ModelConfig) -> Module:
    """A network of the library with weights of a file."""
    reader = read_tables(folder / "model.toml")
    table, _ = reader.part("model", MODELS)
    sample, classes = config.inputs[0].shape[1:], [*config.outputs[0].shape[1:], 1][0]
    module = network_of(table, sample, classes)
    module.load_state_dict(load_weights(folder / "model.safetensors"))
    return module


def _with_specs(config: ModelConfig, module: OnnxModule) -> ModelConfig:
    """The settings with the inputs and outputs that the file declares, where they do not say."""
    return dataclasses.replace(
        config,
        inputs=config.inputs or tuple(map(_spec_of, module.graph.arguments)),
        outputs=config.outputs or tuple(map(_spec_of, module.graph.outputs)),
    )


def _spec_of(info: ValueInfo) -> TensorSpec:
    names = {dtype: name for name, dtype in DATATYPES.items()}
    if info.kind != "tensor" or info.dtype not in names or not info.shape or isinstance(info.shape[0], int):
        raise ConfigError(
            f"the file declares {info.name!r} as {info.kind} {info.dtype} of shape {info.shape}; expected a "
            "tensor with an open first size, the batch. Export it so, or declare it in config.toml"
        )
    sizes = [size if isinstance(size, int) else -1 for size in info.shape]
    return TensorSpec(info.name, names[info.dtype], sizes)


def _check_names(module: OnnxModule, config: ModelConfig) -> None:
    """
    Raises:
        ConfigError: the settings have other inputs or outputs than the file, or another order.
    """
    for key, own in (("inputs", module.input_names), ("outputs", module.output_names)):
        names = tuple(spec.name for spec in getattr(config, key)) or own
        if names != own:
            raise ConfigError(f"config.toml has the {key} {', '.join(names)}, the file {', '.join(own)}")
