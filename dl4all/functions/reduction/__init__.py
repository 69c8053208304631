"""Sums, differences and scans along axes, composed of ops."""
