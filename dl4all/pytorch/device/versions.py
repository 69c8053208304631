"""The versions of PyTorch that this package works with, and what of PyTorch's private interface it uses.

PyTorch has no public way to add a device in Python. What is private may change in any release, so everything
of it is looked for when the package is imported, before anything is registered.
"""

from __future__ import annotations

import torch
import torch.utils.backend_registration

from dl4all.errors import BackendMissingError

TESTED = ("2.12.1", "2.13.0", "2.14.1")
"""Releases with which tests/pytorch/device passes (``lab/torch_versions.py``); the extra names their span."""

PRIVATE = (
    "_C.DispatchKeySet",
    "_C.StorageBase",
    "_C._ExcludeDispatchKeyGuard",
    "_C._acc.create_empty_tensor",
    "_C._acc.register_python_privateuseone_device_guard",
    "_C._acc.register_python_privateuseone_hook",
    "_C._accelerator_getAccelerator",
    "_C._construct_storage_from_data_pointer",
    "_C._from_dlpack",
    "_neg_view",
    "_register_device_module",
    "_C._get_privateuse1_backend_name",
    "autograd._engine_run_backward",
    "autograd.graph._engine_run_backward",
    "autograd.grad_mode.set_multithreading_enabled",
    "library.fallthrough_kernel",
    "nn.DataParallel.forward",
    "ops.aten.set_.source_Storage_storage_offset._handle.redispatch_boxed",
    "storage._StorageBase",
    "utils._python_dispatch.TorchDispatchMode",
    "utils.backend_registration._generate_storage_methods_for_privateuse1_backend",
    "utils.backend_registration._setup_privateuseone_for_python_backend",
)
"""Names below ``torch`` that the package uses and PyTorch does not promise."""


def missing() -> list[str]:
    """The names of :data:`PRIVATE` that this version of PyTorch does not have."""
    return [name for name in PRIVATE if not _has(name)]


def _has(name: str) -> bool:
    value = torch
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            return False
    return True


def check() -> None:
    """
    Raises:
        BackendMissingError: this version of PyTorch lacks something, or another package has taken the one
            place that PyTorch has for a device from outside.
    """
    lacking = missing()
    if lacking:
        raise BackendMissingError(
            f"[dl4all.torch] PyTorch {torch.__version__} lacks torch.{', torch.'.join(lacking)}; "
            f"dl4all was tested with the releases {', '.join(TESTED)}"
        )
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", "dlall"):
        raise BackendMissingError(
            f"[dl4all.torch] PyTorch takes one device from outside for each process, and that is {taken!r} "
            "already; import dl4all.torch in a process without it"
        )
