"""Stands in for matplotlib: figures that nobody sees."""
