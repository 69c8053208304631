"""Every op, declared once: NumPy body, kernel, signature, documentation and where it appears in one place.

Imports between the families point down one list, ``LAYERS`` in tests/test_imports.py. The types of the
functions are in the stub, ``__init__.pyi``, which tools/exports.py writes.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from dl4all import functions
from dl4all.ops.core.exports import EXPORTS
from dl4all.ops.core.op import REGISTRY, all_shaders

for _path, _part in ((__path__, __name__), (functions.__path__, functions.__name__)):
    for _, _family, _is_package in iter_modules(_path, f"{_part}."):
        if _is_package:
            for _module in iter_modules(import_module(_family).__path__, f"{_family}."):
                import_module(_module.name)

_NAMES = {name: one.function for one in EXPORTS for name in one.names}
__all__ = ["REGISTRY", "all_shaders", *sorted(_NAMES)]
globals().update(_NAMES)
