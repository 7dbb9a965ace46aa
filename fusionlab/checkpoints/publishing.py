"""Uploading complete outputs to the Hugging Face hub; all that can be refused is refused before any work."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fusionlab.errors import InputError, first_line

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_OFFLINE = {"1", "ON", "YES", "TRUE"}


def refuse_push(repository: str, overwrite: bool = False) -> None:
    """Refuse an upload that could not be done, before any work: the hub is asked who asks, and for the repository.

    Args:
        repository: such as ``name/model``.
        overwrite: whether what a repository of that name holds may be replaced.

    Raises:
        InputError: no name of a repository, no token, one that the hub refuses, a hub that cannot be reached, or a
            repository that exists and may not be replaced.
    """
    if not _REPOSITORY.fullmatch(repository):
        raise InputError(f"push is {repository!r}; expected a repository of the hub, such as name/model")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in _OFFLINE:
        raise InputError(f"push is {repository}, but HF_HUB_OFFLINE is set; unset it, or leave out --push")
    from huggingface_hub import get_token  # noqa: PLC0415 - imported where something is uploaded

    if not get_token():
        raise InputError(f"push is {repository}, but there is no token; log in (hf auth login), or set HF_TOKEN")
    api = _api()
    try:
        api.whoami()
        exists = api.repo_exists(repository)
    except Exception as error:
        raise InputError(f"{repository} cannot be pushed to: {_reason(error)}") from error
    if exists and not overwrite:
        raise InputError(
            f"{repository} exists on the hub already; choose another name, or allow it to be replaced (--overwrite, "
            f"overwrite=True)"
        )


def push(folder: Path, repository: str, without: Sequence[str] = ()) -> str:
    """Upload a complete folder as a model's repository; what it held is replaced.

    One that is made for this is private, until its owner makes it public.

    Args:
        folder: an output.
        repository: such as ``name/model``.
        without: patterns of files that are not uploaded.

    Returns:
        The address of the repository.

    Raises:
        InputError: the upload failed; the output stays where it is.
    """
    from fusionlab.checkpoints.quiet import quiet  # noqa: PLC0415 - imports transformers

    api = _api()
    try:
        with quiet():
            made = api.create_repo(repository, private=True, exist_ok=True)
            api.upload_folder(
                repo_id=repository,
                folder_path=folder,
                ignore_patterns=list(without),
                delete_patterns="*",
                commit_message="Upload by fusionlab",
            )
    except Exception as error:
        raise InputError(
            f"{folder} is complete, but was not uploaded to {repository}: {_reason(error)}; once that is mended: "
            f"hf upload --private {repository} {folder}{''.join(f' --exclude {name}' for name in without)}"
        ) from error
    return str(made)


def _api() -> HfApi:
    from huggingface_hub import HfApi  # noqa: PLC0415

    # The library reads this once, when it is imported; as in `hub`, what is set now counts.
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"))


def _reason(error: Exception) -> str:
    """The reason for which the hub did not do what it was asked, with the way on."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return "the hub does not know the token; log in again (hf auth login), or set HF_TOKEN"
    if status == 403:
        return "the token may not write there; expected one with write access to that name"
    if status is not None:
        return f"the hub answered {status} ({first_line(error)[:200]})"
    return f"the hub cannot be reached ({type(error).__name__}); check the network (HTTPS_PROXY, HF_ENDPOINT)"
