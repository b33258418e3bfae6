"""Versions of the software that results depend on."""

import os
import platform

import torch

from cotext.data.controlled import VERSION
from cotext.runtime.version import __version__


def versions() -> dict[str, str]:
    return {
        "Cotext": __version__,
        "controlled corpus": str(VERSION),
        "PyTorch": torch.__version__,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
