"""Pretrained models without a download: one of Marian's class trained by transformers, and followed from its
import to its export.
"""
