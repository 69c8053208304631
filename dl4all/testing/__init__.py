"""Tests for other packages to test themselves with.

:mod:`dl4all.testing.conformance` is a suite of tests that a backend has to pass. A package that declares
one (entry point group ``dl4all.backends``) runs it with pytest and any GLSL compiler::

    pytest --pyargs dl4all.testing.conformance --backend=mine

Nothing of dl4all imports this package, and importing it does not need pytest.
"""
