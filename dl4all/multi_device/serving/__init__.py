"""Requests, answered in batches on several devices."""
