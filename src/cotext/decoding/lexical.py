"""Lexical constraints in search."""

from cotext.files.guide import Guide, SentenceConstraints

__all__ = ["Guide", "SentenceConstraints"]
