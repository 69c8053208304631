"""Devices on a virtual clock: they compute with NumPy, in the time that others would take."""
