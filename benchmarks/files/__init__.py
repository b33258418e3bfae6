"""Measurements of what files need beside translation: alignment, inline elements, confidence."""
