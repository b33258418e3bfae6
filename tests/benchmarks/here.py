"""Commands of benchmarks, run in this process, which has imported everything."""

import contextlib
import importlib
import sys
from collections.abc import Sequence
from unittest.mock import patch

from tests.command_line import Outcome, cotext


def run_here(command: Sequence[str]) -> Outcome:
    python, dash_m, module, *arguments = command
    assert (python, dash_m) == (sys.executable, "-m")
    if module == "cotext":
        return cotext(*arguments)
    found = importlib.import_module(module)
    with patch.object(sys, "argv", [module, *arguments]), contextlib.redirect_stdout(None):
        found.main()
    return Outcome(0, "", "")
