"""The version of Cotext, which every number carries."""

__version__ = "0.1.0"
