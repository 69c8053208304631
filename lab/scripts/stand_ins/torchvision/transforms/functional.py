"""Functions that scripts import and do not call."""
