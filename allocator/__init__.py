"""Pooled memory over a backend's raw buffers."""

if __name__ != "dl4all.allocator":
    raise ImportError("import this package as dl4all.allocator")
