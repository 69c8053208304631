"""The Vulkan API itself, through the `vulkan` package's raw cffi calls."""
