"""Rows of a tensor as bytes: cut, and put in another order, whatever their type is."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from dl4all.llm.gguf.reader import GgufTensor
from dl4all.ops.linalg.packed_formats import FORMATS

FLOATS: dict[int, Any] = {0: np.float32, 1: np.float16, 28: np.float64, 30: ml_dtypes.bfloat16}
"""dtypes by ggml's numbers."""
PACKED = {format.number: format for format in FORMATS.values()}


class RowBytes(NamedTuple):
    """Rows of a matrix, or numbers of a vector.

    Attributes:
        kind: ggml's number of their type.
        data: uint8 (rows, bytes of one).
        columns: of a row; 0 for a vector's.
    """

    kind: int
    data: npt.NDArray[np.uint8]
    columns: int

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, columns), or (rows,)."""
        return (len(self.data), self.columns) if self.columns else (len(self.data),)

    def taken(self, index: Any) -> RowBytes:
        """Some of them: a slice, or numbers in their order."""
        return self._replace(data=self.data[index])

    def floats(self) -> npt.NDArray[Any]:
        """Their numbers, in the floats of the file, or in float32 for a type of few bits.

        They are those of the package `gguf` to the last bit.
        """
        if self.kind in FLOATS:
            numbers: npt.NDArray[Any] = np.ascontiguousarray(self.data).view(FLOATS[self.kind])
            return numbers.reshape(self.shape)
        if self.kind in PACKED:
            format = PACKED[self.kind]
            data, scales = format.split(self.data)
            each = scales.astype(np.float32).reshape(-1, format.scales)
            return format.unpacked(data.reshape(-1, format.size), each).reshape(self.shape)
        from gguf import dequantize
        from gguf.constants import GGMLQuantizationType

        made = dequantize(self.data, GGMLQuantizationType(self.kind))
        return made.reshape(self.shape).astype(np.float32, copy=False)


def rows_of(tensor: GgufTensor) -> RowBytes:
    """The rows of a vector, a matrix, or of several matrices one after the other."""
    lead = tensor.shape[:-1] or tensor.shape
    columns = tensor.shape[-1] if len(tensor.shape) > 1 else 0
    rows = int(np.prod(lead, dtype=np.int64))
    return RowBytes(tensor.kind, tensor.data.reshape(rows, -1 if rows else 0), columns)
