"""Joining, splitting, views and windows, composed of ops."""
