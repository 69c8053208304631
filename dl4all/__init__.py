"""Deep learning on any GPU.

>>> import dl4all as dl
>>> x = dl.tensor([[1.0, -2.0], [3.0, 4.0]])
>>> dl.nn.functional.relu(x @ x).tolist()
[[0.0, 0.0], [15.0, 10.0]]

Everything is loaded when a name is first used, or a module first imported: the command's help needs none.
Type checkers read ``__init__.pyi``, which is ``public.py``, where the names are.
"""

from __future__ import annotations

from dl4all.pytorch import first_use, module_aliases

__getattr__, __dir__ = first_use.attribute, first_use.names
module_aliases.install()
first_use.install()
