"""The base class of layers and hooks of all modules, as in ``torch.nn.modules.module``."""

from __future__ import annotations

from dl4all.nn.hooks import register_module_forward_hook as register_module_forward_hook
from dl4all.nn.hooks import register_module_forward_pre_hook as register_module_forward_pre_hook
from dl4all.nn.hooks import register_module_full_backward_hook as register_module_full_backward_hook
from dl4all.nn.hooks import (
    register_module_full_backward_pre_hook as register_module_full_backward_pre_hook,
)
from dl4all.nn.module import Module as Module
from dl4all.nn.parameter import Buffer as Buffer
from dl4all.nn.parameter import Parameter as Parameter
from dl4all.nn.state import Incompatible as _IncompatibleKeys  # noqa: F401 - PyTorch's name
