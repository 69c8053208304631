"""Vulkan through Kompute's Python package `kp`, which only this folder imports."""
