"""Elementwise ops with broadcasting."""
