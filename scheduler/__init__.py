"""Who runs what where: devices with their memory, programs and transfers, and which of them is meant.

Models on several devices are in :mod:`dl4all.multi_device`.
"""

if __name__ != "dl4all.scheduler":
    raise ImportError("import this package as dl4all.scheduler")
