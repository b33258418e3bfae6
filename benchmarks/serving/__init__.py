"""Measurements of a server."""
