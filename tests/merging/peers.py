"""The interpreter that has the merge tools which tests compare with."""

import os
from pathlib import Path

INSTALLED = Path(__file__).parents[2] / ".venv-peers" / "bin" / "python"


def python_with(command: str, variable: str) -> str | None:
    """An interpreter that has a tool, or None: what a variable names, else `.venv-peers`, which make test-peers makes.

    Args:
        command: that the tool installs.
        variable: of the environment.
    """
    return os.environ.get(variable) or (str(INSTALLED) if INSTALLED.with_name(command).exists() else None)
