"""An accelerator with a scratchpad, a systolic array and a vector unit, which one can program and time."""
