"""Where to compute."""

import torch

from cotext.errors import CotextError, shown


def choose_device(name: str | None) -> torch.device:
    """The named device, or the GPU where there is one.

    Raises:
        CotextError: no such device, or none that computes.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        # Read back, which a device that holds no numbers (meta) refuses.
        torch.zeros(1, device=name).tolist()
        return torch.device(name)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise CotextError(
            f"device {shown(name)} cannot be used: {str(error).splitlines()[0][:200]}"
        ) from None
