"""The Open Inference Protocol: what goes over the wire, and who answers it."""
