"""From a call of an ATen op to its kernel: schemas, dtypes, launch plans, the fallback to the CPU."""
