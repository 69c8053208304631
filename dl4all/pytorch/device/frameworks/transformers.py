"""Hugging Face's Trainer on ``dlall``, also in bfloat16."""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType
from typing import Any

from dl4all.pytorch.device.devices import NAME

BFLOAT16 = "is_torch_bf16_gpu_available"
DEVICE = "ACCELERATE_TORCH_DEVICE"
"""The variable by which the Trainer takes a device that it does not know by name."""


def offer_bfloat16(import_utils: ModuleType) -> None:
    """Say that there is bfloat16, which ``dlall`` has everywhere; modules hold the function by its name."""
    package = import_utils.__name__.partition(".")[0]
    asked = getattr(import_utils, BFLOAT16)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package and vars(module).get(BFLOAT16) is asked:
            setattr(module, BFLOAT16, lambda: True)


def prefer(training_args: ModuleType) -> None:
    """Make ``dlall`` the device of ``TrainingArguments``; ``use_cpu=True`` is still the CPU.

    The variable is set for that one question: processes that this one starts may have no ``dlall``.
    """
    choice = vars(training_args.TrainingArguments)["_setup_devices"]
    choose = choice.func

    @functools.wraps(choose)
    def choose_device(self: Any) -> Any:
        if self.use_cpu or DEVICE in os.environ or "LOCAL_RANK" in os.environ:
            return choose(self)
        os.environ[DEVICE] = NAME
        try:
            return choose(self)
        finally:
            del os.environ[DEVICE]

    choice.func = choose_device
