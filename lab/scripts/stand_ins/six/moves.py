"""What Python 3 names otherwise."""

import urllib.request
from urllib import request

__all__ = ["request", "urllib"]
