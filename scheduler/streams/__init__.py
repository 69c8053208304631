"""Queues of work for a device, tasks in them, events between them, and groups of devices."""
