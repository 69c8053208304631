"""How an allocator finds a place for an allocation: one strategy a file."""
