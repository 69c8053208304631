"""Counters, rates and profiles of devices, and their publication for other processes."""
