"""Documents beside a model's weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dl4all.errors import FileFormatError


def read_json(path: Path) -> dict[str, Any]:
    """The document of a file.

    Raises:
        FileFormatError: it is missing, or no object of JSON.
    """
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileFormatError(f"[llm] {path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise FileFormatError(f"[llm] {path} has a {type(document).__name__}, expected an object")
    return document
