"""GLSL compute shaders: plain .comp files, and what they share under include/."""

from __future__ import annotations

from pathlib import Path

if __name__ != "dl4all.shaders":
    raise ImportError("import this package as dl4all.shaders")

ROOT = Path(__file__).parent
