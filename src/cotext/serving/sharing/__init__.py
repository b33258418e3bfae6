"""One model for many clients: their documents share batches."""

from cotext.serving.sharing.shared_system import SharedSystem
from cotext.serving.sharing.turns import CancelledError, Work

__all__ = ["CancelledError", "SharedSystem", "Work"]
