"""Stands in for six."""
