"""The work of a model, found out without computing, and the speed of a device."""
