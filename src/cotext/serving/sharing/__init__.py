"""One model for the documents of many clients, who share its batches."""

from cotext.serving.sharing.shared_system import SharedSystem
from cotext.serving.sharing.turns import CancelledError, Work

__all__ = ["CancelledError", "SharedSystem", "Work"]
