"""Talks to hardware: discovery, backends, SPIR-V. Knows no op and no tensor."""

if __name__ != "dl4all.runtime":
    raise ImportError("import this package as dl4all.runtime")
