"""Single steps of recurrent networks, and whole sequences."""
