"""The parameters, buffers or modules of one module as a dict that can be changed."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any


class Members(MutableMapping[str, Any]):
    """The dicts ``_parameters``, ``_buffers`` and ``_modules`` of a module, as PyTorch has them.

    Args:
        module: whose members they are.
        kind: of the members, see ``Module._kinds``.
    """

    def __init__(self, module: Any, kind: str) -> None:
        self._module, self._kind = module, kind

    def __getitem__(self, name: str) -> Any:
        if self._module._kinds.get(name) != self._kind:
            raise KeyError(name)
        return vars(self._module)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._module._put(name, self._kind, value)

    def __delitem__(self, name: str) -> None:
        self[name]
        delattr(self._module, name)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, kind in self._module._kinds.items() if kind == self._kind])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))
