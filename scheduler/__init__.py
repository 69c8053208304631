"""Who runs what where."""

if __name__ != "dl4all.scheduler":
    raise ImportError("import this package as dl4all.scheduler")
