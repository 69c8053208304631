"""Devices on a virtual clock: they compute through NumPy references, in the time that others would take."""
