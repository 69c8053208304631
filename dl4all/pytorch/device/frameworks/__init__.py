"""accelerate, transformers, Lightning and safetensors, which know their devices by name, told of ``dlall``.

The first three ask ``torch.cuda``, ``torch.xpu`` and others one by one, and take the CPU where none of them
answers, without a word. All are changed when they are imported, before or after ``dl4all.torch``; none is
imported here.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from types import ModuleType

import wrapt

from dl4all.pytorch.device.frameworks import accelerate, fabric, safetensors, transformers

logger = logging.getLogger("dl4all")

AFTER_IMPORT: dict[str, Callable[[ModuleType], None]] = {
    "accelerate.state": accelerate.prefer,
    "safetensors.torch": safetensors.read_to_device,
    "transformers.training_args": transformers.prefer,
    "transformers.utils.import_utils": transformers.offer_bfloat16,
    "lightning.pytorch.trainer.connectors.accelerator_connector": fabric.connect,
    "lightning.fabric.connector": fabric.connect,
    "pytorch_lightning.trainer.connectors.accelerator_connector": fabric.connect,
    "lightning_fabric.connector": fabric.connect,
}
"""Changes by the name of the module after whose import they are made."""


def register() -> None:
    """Do it where a module has been imported, and otherwise as soon as it is."""
    for name, change in AFTER_IMPORT.items():
        wrapt.register_post_import_hook(functools.partial(_changed, change), name)


def _changed(change: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Change a module, which must be importable also where another release has other names."""
    try:
        change(module)
    except (AttributeError, KeyError) as error:
        logger.warning(
            "[dl4all.torch] %s is of a release that is not known (%s): name the device in the script",
            module.__name__.partition(".")[0],
            error,
        )
