"""The one build step that pyproject.toml cannot express: wheels carry compiled shaders.

Everything else is in pyproject.toml. An editable install skips this; there, shaders are compiled
when they are first used.
"""

import os
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPyAndShaders(build_py):
    """Copies the Python files, then compiles every shader that an op declares beside them."""

    def run(self) -> None:
        super().run()
        if self.editable_mode or os.environ.get("DL4ALL_BUILD_SPIRV") == "0":
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
