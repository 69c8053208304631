"""What runs in a process for each family: a driver reads at its start which GPU it is to describe.

Writes a line of JSON for the device, one when a pipeline is begun and one when it is done, so that the parent
knows which one a driver died of.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dl4all.errors import Dl4allError
from dl4all.runtime.vulkan.discovery import physical_devices
from lab.kernel_figures.driver import Compiler
from lab.kernel_figures.families import FAMILIES
from lab.kernel_figures.figures import figures, to_row
from lab.kernel_figures.isa import main_loop
from lab.kernel_figures.pipelines import DECLARED, gather

ASSEMBLY = "Assembly"


def compile_all(family: str, text: str, skipped: set[str], folder: Path | None) -> None:
    """Compile the pipelines whose name or use has `text` in it, and write the code of each to `folder`."""
    physical = physical_devices()[0]
    compiler = Compiler(physical)
    say(driver=physical.info.driver_version, hardware=physical.info.hardware)
    for number, pipeline in enumerate(gather(physical.info, physical.info.features)):
        name = pipeline.name
        if name in skipped or text not in f"{pipeline.used_by} {name}":
            continue
        say(begun=name, used_by=pipeline.used_by)
        try:
            statistics, texts = compiler.compile(pipeline, texts=pipeline.used_by != DECLARED)
        except Dl4allError as error:
            say(failed=str(error))
            continue
        loop = main_loop(texts[ASSEMBLY]) if FAMILIES[family].vendor == "amd" and ASSEMBLY in texts else None
        say(figures=to_row(figures(FAMILIES[family], statistics, pipeline.lanes, loop)))
        if folder is not None:
            for language, code in texts.items():
                file = folder / f"{number:04d}.{language.split()[0].replace('/', '')}.txt"
                file.write_text(f"; {name}, used by {pipeline.used_by}\n{code}", "utf-8")


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    folder = Path(request["folder"]) if request["folder"] else None
    compile_all(request["family"], request["text"], set(request["skipped"]), folder)
