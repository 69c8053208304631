"""Devices on a virtual clock: they compute through the NumPy references, in the time that others would take."""
