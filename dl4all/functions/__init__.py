"""Functions composed of ops, by subject, and the modules ``dl.linalg``, ``dl.sparse`` and ``dl.func``."""
