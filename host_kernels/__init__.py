"""The compiled kernels of the CPU, by family: each module declares those of its ops.

The package is imported when the first op looks for a kernel, and where there is no compiler never.
"""

import importlib
import pkgutil

if __name__ != "dl4all.host_kernels":
    raise ImportError("import this package as dl4all.host_kernels")

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
