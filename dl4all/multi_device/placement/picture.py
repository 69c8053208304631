"""A placement as a picture: a row for each stage, and over time what it does for which micro-batch."""

from __future__ import annotations

from pathlib import Path

from dl4all.io.picture_file import new_figure, save_figure
from dl4all.multi_device.placement.plan import Placement

COLOURS = {"forward": "#4c78a8", "backward": "#f58518", "update": "#54a24b", "transfer": "#bab0ac"}
HEIGHT = 0.6  # of a bar; that of a transfer is a fraction of it, and lies below
LABELLED = 0.02  # the share of the step from which on a slot has room for its micro-batch's number


def draw(placement: Placement, file: str | Path) -> None:
    """Draw a step into an image file (SVG, PNG or PDF by the file's suffix).

    Raises:
        ArgumentError: the suffix says no kind of picture.
        BackendMissingError: matplotlib is not installed.
        FileFormatError: the file cannot be written.
    """
    figure = new_figure("Placement", 10, 1.5 + 0.6 * len(placement.stages))
    from matplotlib.patches import Patch

    stages = placement.stages
    axes = figure.add_subplot()
    for slot in placement.slots:
        start, seconds = slot.start * 1e3, (slot.end - slot.start) * 1e3
        moves = slot.kind == "transfer"
        bottom, height = (slot.stage + HEIGHT / 2, HEIGHT / 4) if moves else (slot.stage - HEIGHT / 2, HEIGHT)
        axes.broken_barh(
            [(start, seconds)],
            (bottom, height),
            facecolors=COLOURS[slot.kind],
            edgecolors="white",
            linewidth=0.5,
        )
        numbered = placement.micro_batches > 1 and slot.kind in ("forward", "backward")
        if numbered and slot.end - slot.start > LABELLED * placement.seconds:
            axes.text(
                    start + seconds / 2, slot.stage, str(slot.micro_batch), ha="center", va="center",
                    color="white", fontsize=8,
                )  # fmt: skip
    axes.set_yticks(
        range(len(stages)), [f"{stage.device}\n{stage.units[0] or placement.model} ..." for stage in stages]
    )
    axes.invert_yaxis()
    axes.set_xlim(0, max(placement.seconds * 1e3, 1e-9))
    axes.set_xlabel("ms")
    axes.set_title(placement.summary(), fontsize=9, loc="left", wrap=True)
    kinds = dict.fromkeys(slot.kind for slot in placement.slots)
    patches = [Patch(color=COLOURS[kind], label=kind) for kind in kinds]
    figure.legend(handles=patches, fontsize=8, loc="outside lower right", ncols=len(patches))
    save_figure("Placement", figure, file)
