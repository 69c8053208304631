"""The export of models, which is not here yet."""

from __future__ import annotations

from typing import Any, NoReturn

from dl4all.errors import GraphError


def export(model: Any, args: Any = (), f: Any = None, **kwargs: Any) -> NoReturn:
    """Refuse to write a model as an ONNX file.

    Args:
        model, args, f, kwargs: as PyTorch's.

    Raises:
        GraphError: always; the message says which way leads to ONNX.

    Example:
        >>> import dl4all as dl
        >>> dl.onnx.export(dl.nn.Linear(3, 2), (dl.ones(1, 3),), "model.onnx")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        dl4all.errors.GraphError: [onnx.export] dl4all writes no ONNX files; ...
    """
    raise GraphError(
        "[onnx.export] dl4all writes no ONNX files; save the weights by dl.save(model.state_dict(), path), "
        "load them into PyTorch's model, and export that by torch.onnx.export"
    )
