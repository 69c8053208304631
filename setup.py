"""Two build steps that pyproject.toml cannot express: compiled shaders, and stubs of modules' other names.

Everything else is in pyproject.toml. An editable install skips this; there, shaders are compiled
when they are first used.
"""

import os
import runpy
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


def write_stubs(folder: Path) -> None:
    """Write a stub for each module that has another name: type checkers look for modules by their files."""
    for alias, name in runpy.run_path(str(folder / "dl4all" / "pytorch/module_aliases.py"))[
        "ALIASES"
    ].items():
        source, target = (folder.joinpath(*dotted.split(".")) for dotted in (name, alias))
        files = source.rglob("*.py") if source.is_dir() else [source.with_suffix(".py")]
        for file in files:
            module = ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
            stub = (target / file.relative_to(source) if source.is_dir() else target).with_suffix(".pyi")
            stub.parent.mkdir(parents=True, exist_ok=True)
            stub.write_text(f"from {module} import *\n")


class BuildPyAndShaders(build_py):
    """Copies the Python files, then compiles every shader that an op declares beside them."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        write_stubs(Path(self.build_lib))
        if os.environ.get("DL4ALL_BUILD_SPIRV") == "0":
            return
        # The copy is imported, not the source tree: an sdist has no links inside dl4all/.
        sys.path.insert(0, str(Path(self.build_lib).absolute()))
        import dl4all.graph.op_codes.interpreter  # noqa: F401  # adds its shaders to the optional ones
        from dl4all.errors import Dl4allError
        from dl4all.ops import all_shaders
        from dl4all.ops.core.op import OPTIONAL_SHADERS
        from dl4all.runtime import spirv

        try:
            folder = Path(self.build_lib) / "dl4all" / "shaders" / "spirv"
            files = spirv.build(all_shaders(), folder, optional=OPTIONAL_SHADERS)
        except Dl4allError as error:
            raise SystemExit(
                f"A wheel of dl4all carries compiled shaders, and they could not be made: {error}\n"
                "DL4ALL_BUILD_SPIRV=0 builds a wheel without them, which needs a compiler where it runs."
            ) from None
        print(f"compiled {len(files)} shaders")


setup(cmdclass={"build_py": BuildPyAndShaders})
