"""Rows that indices select, sums of them, and checks of indices."""
