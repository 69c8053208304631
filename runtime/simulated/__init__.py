"""Devices that compute through the NumPy references, and take the time that others would take, on a virtual clock."""
