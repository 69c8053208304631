"""The option ``--backend`` of ``pytest --pyargs dl4all.testing.conformance --backend=NAME``.

pytest reads the command line before it finds the suite's ``conftest.py``, so the option has to come from a
plugin that is installed. It lies beside the package because every pytest on a machine with dl4all loads it,
and importing ``dl4all`` takes NumPy and time.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add it where the suite is asked for; anywhere else the name belongs to others."""
    config = pluginmanager.get_plugin("pytestconfig")
    if isinstance(config, pytest.Config) and _wanted(config):
        parser.getgroup("dl4all").addoption(
            "--backend",
            action="append",
            dest="dl4all_backends",
            metavar="NAME",
            help="the backend to test, NAME or NAME:INDEX; may be repeated",
        )


@pytest.hookimpl(trylast=True)  # a conftest.py may have something to say first
def pytest_configure(config: pytest.Config) -> None:
    """Refuse names that lead nowhere before anything is collected."""
    if _wanted(config):
        from dl4all.testing.conformance.targets import ways_of

        ways_of(config)


def _wanted(config: pytest.Config) -> bool:
    arguments = [str(argument).replace("\\", "/") for argument in config.invocation_params.args]
    return any("dl4all.testing" in argument or "dl4all/testing" in argument for argument in arguments)
