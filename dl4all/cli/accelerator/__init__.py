"""``dl4all emulate``."""
