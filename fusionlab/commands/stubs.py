"""The search path of stubs, in which jsonargparse finds the types of parameters that are not annotated."""

import sys
from functools import partial
from pathlib import Path

import typeshed_client


def look_in_own_path() -> None:
    """Let stubs be looked for in this Python's own path, without another Python that is asked for it.

    typeshed_client starts one. Where a signal ends a command in that moment, the other one tells of its broken pipe
    after the command's last line.
    """
    path = [Path(entry) for entry in sys.path if entry]
    typeshed_client.get_search_context = partial(typeshed_client.get_search_context, search_path=path)
