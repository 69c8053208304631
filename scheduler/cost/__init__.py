"""Seconds of work, expected and at most, and devices on a virtual clock."""
