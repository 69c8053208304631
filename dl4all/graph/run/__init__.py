"""Compiled functions: a graph for each kind of arguments, made ready for a device, and replayed."""
