"""Single inputs, answered in batches on several devices."""
