"""One step of recurrent networks."""
