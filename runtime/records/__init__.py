"""Files in the user's cache: what is known of devices, and what was measured."""
