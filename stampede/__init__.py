"""A laboratory that shows which worker of a Python web service served each request, and which requests waited."""

__version__ = "0.2.0"
