"""Vulkan's debugging tools: names of objects, and labels for captures."""
