"""Sorting, searching, order statistics and sets, composed of ops."""
