"""The tests that a backend passes: each sentence of :mod:`dl4all.runtime.protocols`, tried out.

``--backend=NAME``, or ``NAME:INDEX`` for another device than the first, says which backend is opened, as
often as given. What a backend may do or leave is decided by its ``capabilities`` and ``features``: what they
promise is tested, and where they promise nothing, that asking for it is refused with a clear error.

Every test computes on random words of odd and prime counts, in memory that was poisoned, and compares all of
it with what NumPy makes of the same commands.
"""
