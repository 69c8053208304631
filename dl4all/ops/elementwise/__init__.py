"""Ops on elements at the same place, with broadcasting."""
