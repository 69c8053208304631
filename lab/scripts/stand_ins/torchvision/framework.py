"""The library that the script runs with: PyTorch, or dl4all in its place."""

import importlib
import os

torch = importlib.import_module(os.environ["SCRIPT_FRAMEWORK"])
