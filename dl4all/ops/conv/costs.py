"""The costs that several algorithms of convolution share.

Costs are counted in floating point operations of a matrix product. How many of these take as long as other
work on a float was measured on llvmpipe (docs/performance.md). GPUs compute about 30 operations in the time
of a byte, so there a float that is written and read again costs about as much.
"""

from __future__ import annotations

from collections.abc import Mapping

from dl4all.ops.conv.problem import Direction
from dl4all.ops.core.kernels.launch import ceil_div
from dl4all.ops.linalg.gemm import NARROW, PANEL, PLAIN
from dl4all.runtime.device_info import DeviceInfo

COST_PER_LAUNCH = 3e6
COST_PER_STORED_FLOAT = 100  # Finding a float and writing it where the product reads it.
COST_PER_RESULT = 30  # Writing a result.

COST_PER_FILTER_ELEMENT: Mapping[Direction, int] = {
    "forward": 20,  # Reading it: the filters of a network that is not trained are transformed before.
    "input_gradient": 200,  # Transforming it.
    "weight_gradient": 400,  # Filling it with small products, and transforming it back.
}


def gemm_cost(info: DeviceInfo, rows: int, columns: int, reduction_size: int) -> float:
    """The cost of a matrix product, which is computed in whole tiles."""
    wide, narrow = (PANEL, NARROW.columns) if info.type == "software" else (PLAIN.columns, PLAIN.columns)
    # A narrow tile takes two thirds of a wide one's time.
    wide_tiles = min(ceil_div(columns, wide), ceil_div(columns, narrow) * 2 / 3 if narrow < wide else columns)
    return 2 * ceil_div(rows, PLAIN.rows) * PLAIN.rows * wide_tiles * wide * reduction_size
