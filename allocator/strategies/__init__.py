"""Strategies by which an allocator finds a place for an allocation: one a file."""
