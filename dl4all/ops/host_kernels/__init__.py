"""The compiled kernels of the CPU, by family: each module declares those of its ops.

The package is imported when the first op looks for a kernel, and where there is no compiler never.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
