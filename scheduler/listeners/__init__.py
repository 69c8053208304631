"""Listeners to the launches, allocations and reads of devices while a function runs."""
