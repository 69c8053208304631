"""Copies, views and conversions between dtypes."""
