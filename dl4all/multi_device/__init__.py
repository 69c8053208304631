"""Modules on several devices at once."""
