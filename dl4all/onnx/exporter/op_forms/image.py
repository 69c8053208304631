"""Pictures at positions that are computed."""

from __future__ import annotations

from dl4all.onnx.exporter.recording import OpCall
from dl4all.onnx.exporter.writer import GraphWriter, written

MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""The modes from opset 20 on."""


@written("grid_sample")
def grid_sample(w: GraphWriter, call: OpCall) -> str:
    x, grid, mode, padding, corners = call.operands
    if w.opset < 20 and len(x.shape) != 4:
        raise w.refused("grid_sample of volumes has a form from opset 20 on")
    mode = MODES.get(mode, mode) if w.opset >= 20 else mode
    inputs = [w.get(x), w.get(grid)]
    return w.add("GridSample", inputs, mode=mode, padding_mode=padding, align_corners=int(corners))
