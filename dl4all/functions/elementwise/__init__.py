"""Elementwise functions composed of ops."""
