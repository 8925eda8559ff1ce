"""The one place in which the version is written."""

__version__ = "0.1.0"
