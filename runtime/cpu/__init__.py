"""Host memory. Ops run their NumPy reference here."""
