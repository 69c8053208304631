"""Devices: memory, programs, copies, names, and which of them is meant."""
