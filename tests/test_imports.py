"""Imports point one way, and what is public is documented. Both are read from the tree itself."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dl4all as dl
from dl4all.ops.core.op import Op
from tests.support.parts import PARTS

ROOT = Path(__file__).parents[1]

# Each layer may import those above it in this list, and itself. A name stands for all below it,
# and the longest that fits counts.
LAYERS = (
    ("dl4all.errors",),
    ("dl4all.config", "dl4all.lazy_names"),
    ("dl4all.shaders",),
    ("dl4all.runtime",),
    ("dl4all.allocator",),
    ("dl4all.scheduler",),
    ("dl4all.ops.core",),
    ("dl4all.ops.elementwise",),
    ("dl4all.ops.memory",),
    ("dl4all.ops.sorting",),
    ("dl4all.ops.activation", "dl4all.ops.indexing"),
    ("dl4all.ops.reduce",),
    ("dl4all.ops.vmap.batched_tensor",),
    ("dl4all.ops.linalg", "dl4all.ops.normalization", "dl4all.ops.random"),
    ("dl4all.functions",),
    ("dl4all.ops.attention", "dl4all.ops.conv", "dl4all.ops.rnn"),
    ("dl4all.ops.loss", "dl4all.ops.pool", "dl4all.ops.vmap"),
    ("dl4all.host_kernels",),  # loaded when the first op asks for one
    ("dl4all.ops",),
    ("dl4all.functions.names",),
    ("dl4all.autograd",),
    ("dl4all.tensor",),
    ("dl4all.distributed",),
    ("dl4all.calibration", "dl4all.functions.sparse"),
    ("dl4all.nn",),
    ("dl4all.optim", "dl4all.distributions"),
    ("dl4all.models", "dl4all.data", "dl4all.io", "dl4all.memory"),
    (
        "dl4all.amp",
        "dl4all.quantization",
        "dl4all.fft",
        "dl4all.functions.linalg",
        "dl4all.meta",
    ),
    ("dl4all.graph",),
    ("dl4all.multi_device", "dl4all.functions.func"),
    ("dl4all.multi_device.trace",),
    ("dl4all.multi_device.placement",),
    ("dl4all.multi_device.data_parallel", "dl4all.multi_device.pipeline", "dl4all.multi_device.serving"),
    ("dl4all.nn.parallel",),
    ("dl4all.training", "dl4all.onnx", "dl4all.search"),
    ("dl4all.automl", "dl4all.llm"),
    ("dl4all.pytorch",),
    ("dl4all.pytorch.missing", "dl4all.pytorch.names"),
    ("dl4all.serving",),
    ("dl4all.public",),
    ("dl4all",),  # what people import
    ("dl4all.pytorch.device",),  # what they import beside PyTorch
    ("dl4all.cli",),
    ("dl4all.__main__",),
    ("dl4all.testing",),  # for the tests of other packages; below it there is only what they build on
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
OUTSIDE = {
    "kp": "dl4all.runtime.kompute",
    "vulkan": "dl4all.runtime.vulkan",
    "pytest": "dl4all.testing",  # no dependency of the library
    "torch": "dl4all.pytorch.device dl4all.distributed.process_group.gloo "
    "dl4all.distributed.process_group.torchft",
    "torchft": "dl4all.distributed.process_group.torchft dl4all.cli.processes.lighthouse",
    "mpi4py": "dl4all.distributed.process_group.mpi",
    "onnx": "dl4all.onnx.dtypes",
    "llvmlite": "dl4all.runtime.cpu.llvm",
    "einops": "dl4all.pytorch.names.einops",
    "starlette": "dl4all.serving.protocol.http_routes dl4all.serving.protocol.http_request "
    "dl4all.serving.protocol.openai_routes",
    "uvicorn": "dl4all.serving.server dl4all.serving.protocol.http_connection",
    "grpc": "dl4all.serving.server dl4all.serving.protocol.grpc_service "
    "dl4all.distributed.parameter_server.client dl4all.training.parameter_server",
    "grpc_health": "dl4all.serving.protocol.grpc_service",
    "optuna": "dl4all.search dl4all.automl dl4all.cli.processes.search dl4all.cli.processes.trials",
    "cloudpickle": "dl4all.search.worker_processes",
    "prometheus_client": "dl4all.serving.metrics",
    "pandas": "dl4all.automl dl4all.cli.processes.automl",
    "sklearn": "dl4all.automl dl4all.cli.processes.automl",
    "joblib": "dl4all.automl",
    "jinja2": "dl4all.automl.report dl4all.llm.chat_template",
    "tokenizers": "dl4all.llm.tokenizer dl4all.llm.gguf.vocabulary",
    "huggingface_hub": "dl4all.llm.model_files",
    "gguf": "dl4all.llm.gguf",
}


def _modules() -> dict[str, Path]:
    """Every module of the library by name; the parts are links inside dl4all/."""
    found = {}
    for part in ("dl4all", *PARTS):
        for path in (ROOT / part).rglob("*.py"):
            words = path.relative_to(ROOT).with_suffix("").parts
            words = words if words[0] == "dl4all" else ("dl4all", *words)
            found[".".join(words[:-1] if words[-1] == "__init__" else words)] = path
    return found


MODULES = _modules()


@functools.cache
def parsed(module: str) -> ast.Module:
    """The source of a module of the library."""
    return ast.parse(MODULES[module].read_text("utf-8"))


def imports_of(source: ast.AST) -> Iterator[str]:
    """Every name that a module imports anywhere, in functions and under TYPE_CHECKING too."""
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer_of(name: str) -> str:
    """The layer that a module, or a name in one, belongs to."""
    words = name.split(".")
    for length in range(len(words), 0, -1):
        if (layer := ".".join(words[:length])) in LEVEL:
            return layer
    raise AssertionError(f"{name} belongs to no layer: put it into LAYERS")


def target_of(imported: str) -> str:
    """The module behind an imported name: itself, or the one that it is a name in."""
    return imported if imported in MODULES else imported.rpartition(".")[0] or imported


def wrong_imports(module: str, source: ast.AST) -> list[str]:
    """What a module imports and must not."""
    own = layer_of(module)
    wrong = []
    for imported in imports_of(source):
        top = imported.split(".")[0]
        if top in OUTSIDE and not any(f"{module}.".startswith(f"{room}.") for room in OUTSIDE[top].split()):
            wrong.append(imported)
        if top == "dl4all":
            other = layer_of(target_of(imported))
            if own == "dl4all.testing" and other not in ("dl4all.errors", "dl4all.runtime", own):
                wrong.append(imported)
            if other != own and LEVEL[other] >= LEVEL[own]:
                wrong.append(imported)
        elif top in (*PARTS, "tests"):
            wrong.append(imported)
    return wrong


def test_imports_point_one_way() -> None:
    wrong = {module: wrong_imports(module, parsed(module)) for module in MODULES}
    assert {module: imports for module, imports in wrong.items() if imports} == {}


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("dl4all.runtime.registry", "from dl4all.allocator.strategies.size_class import Pool", True),
        ("dl4all.runtime.registry", "from dl4all.config import device_setting", False),
        ("dl4all.runtime.registry", "from dl4all import ops", True),
        ("dl4all.runtime.registry", "from dl4all import errors", False),
        ("dl4all.runtime.registry", "import dl4all", True),
        ("dl4all.errors", "from dl4all.config import KNOWN", True),
        (
            "dl4all.allocator.strategies.size_class",
            "if TYPE_CHECKING:\n from dl4all.scheduler.device.device import Device",
            True,
        ),
        ("dl4all.scheduler.device.device", "def f():\n import dl4all.ops.core.tensor_base", True),
        ("dl4all.ops.core.tensor_base", "from dl4all.tensor import Tensor", True),
        ("dl4all.tensor.tensor", "from dl4all.ops.core.tensor_base import TensorBase", False),
        ("dl4all.io.weights", "from dl4all.models import resnet18", True),
        ("dl4all.models.resnet", "from dl4all import nn", False),
        ("dl4all.nn.modules.linear", "from dl4all.nn.module import Module", False),
        ("dl4all.cli.run", "import dl4all as dl", False),
        ("dl4all", "from dl4all.cli import main", True),
        ("dl4all.runtime.kompute.library", "import kp", False),
        ("dl4all.runtime.vulkan.stream", "import kp", True),
        ("dl4all.runtime.vulkan.instance", "import vulkan", False),
        ("dl4all.runtime.kompute.library", "from vulkan import ffi", True),
        ("dl4all.io.weights", "import torch.nn as nn", True),
        ("dl4all.scheduler.device.device", "from runtime import registry", True),
        ("dl4all.testing.conformance.harness", "from dl4all.runtime.protocols import Backend", False),
        ("dl4all.testing.conformance.harness", "from dl4all.scheduler.device.device import Device", True),
        ("dl4all.testing.conformance.harness", "import dl4all", True),
        ("dl4all.testing.conformance.targets", "import pytest", False),
        ("dl4all.runtime.protocols", "import pytest", True),
        ("dl4all.runtime.protocols", "from dl4all.testing.conformance.harness import Bench", True),
        ("dl4all.cli.run", "from dl4all.testing import conformance", True),
    ],
)
def test_the_rule_itself(module: str, source: str, wrong: bool) -> None:
    assert bool(wrong_imports(module, ast.parse(source))) == wrong


def test_every_package_is_in_the_list_of_layers() -> None:
    for module, path in MODULES.items():
        depth = module.count(".")
        if depth == 1 or (depth == 2 and module.startswith("dl4all.ops.")):
            assert layer_of(module) == module, f"put {path.relative_to(ROOT)} into LAYERS"


def test_every_layer_is_there() -> None:
    assert not [name for name in LEVEL if not any(f"{module}.".startswith(f"{name}.") for module in MODULES)]


def test_the_page_shows_the_families_in_this_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rows = re.findall(r"^\| \d+ \| (`.*?`) \|", page, re.M)
    shown = [tuple(f"dl4all.ops.{name}" for name in re.findall(r"`([\w.]+)`", row)) for row in rows]
    assert shown == [layer for layer in LAYERS if layer[0].startswith("dl4all.ops.")]


# Documentation


def test_every_module_says_what_it_is() -> None:
    """In a docstring whose first line is a sentence."""
    texts = {module: ast.get_docstring(parsed(module)) for module in MODULES}
    assert [module for module, text in texts.items() if not text] == []
    first_lines = {module: text.splitlines()[0] for module, text in texts.items() if text}
    assert {module: line for module, line in first_lines.items() if not line.endswith((".", ":", "?"))} == {}


def _public() -> dict[str, Any]:
    found = {}
    for space in (dl, dl.nn, dl.nn.functional):
        for name in space.__all__:
            found[f"{space.__name__}.{name}"] = getattr(space, name)
    return {
        name: thing
        for name, thing in found.items()
        if callable(thing) and not inspect.ismodule(thing) and not isinstance(thing, type(dl.float32))
    }


PUBLIC = _public()


def test_what_is_public_is_documented() -> None:
    wrong = []
    for name, thing in PUBLIC.items():
        text = inspect.getdoc(thing)
        if not text:
            wrong.append(f"{name} has no docstring")
        elif inspect.isclass(thing) and not thing.__dict__.get("__doc__"):
            wrong.append(f"{name} has only its base's docstring")
        elif isinstance(thing, Op) and ">>> " not in text:
            wrong.append(f"{name} is an op and shows no example")
    assert wrong == []


@pytest.mark.parametrize("space", [dl, dl.nn, dl.nn.functional], ids=lambda space: str(space.__name__))
def test_what_is_public_is_there_once(space: Any) -> None:
    assert len(set(space.__all__)) == len(space.__all__)
    assert all(hasattr(space, name) for name in space.__all__)
