"""Who runs what where: devices with their memory, programs and transfers, and which of them is meant.

Placement on several devices at once and splitting of work will live here too.
"""

if __name__ != "dl4all.scheduler":
    raise ImportError("import this package as dl4all.scheduler")
