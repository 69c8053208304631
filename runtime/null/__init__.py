"""Runs nothing and counts everything: tests without a driver, and the skeleton of a new backend."""
