"""From a name to a folder or file on this machine: a local path, or a model of the Hugging Face hub."""

import os
import re
from pathlib import Path

from fusionlab.checkpoints import bare
from fusionlab.checkpoints.files import PICKLE, SAFETENSORS
from fusionlab.checkpoints.sentence_modules import sentence_modules
from fusionlab.errors import InputError
from fusionlab.paths import expanded
from fusionlab.suggestions import beside

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
# fnmatch's * also matches slashes, so names are given with their beginning: other formats in subfolders stay away.
_DESCRIPTION = ["*.json", "*.txt", "*.model", "*.spm", "*.tiktoken", "*.codes", "*.bpe", "*.jinja", "README.md"]
_SAFETENSORS = ["model.safetensors", "model-*.safetensors", "adapter_model.safetensors"]
_NOT_FOUND = ("RepositoryNotFound", "GatedRepo", "Unauthorized", "DatasetNotFound")
_PICKLES = ["pytorch_model.bin", "pytorch_model-*.bin", "adapter_model.bin"]


def locate(path_or_hub_id: str | Path) -> Path:
    """The local file or folder of a checkpoint; a hub id is downloaded, or found in the local cache.

    Args:
        path_or_hub_id: a path, or a hub id such as ``google/vit-base-patch16-224``. A path that exists wins.

    Returns:
        The file or folder; for a bare state dict, where `use_architecture` named a description, a folder of both.

    Raises:
        InputError: there is no such path, and no such model can be reached on the hub.
    """
    path = expanded(path_or_hub_id)
    if path.exists():
        return bare.stand_in(path)
    name = str(path_or_hub_id)
    if not _HUB_ID.fullmatch(name) or path.suffix in {".ckpt", ".safetensors", ".bin", ".json"}:
        raise InputError(f"{name}: there is no such file or folder{beside(path)}")
    return _download(name)


def use_architecture(path_or_hub_id: str | None) -> None:
    """Take bare state dicts for models of one description from now on, which is a whole process's.

    Args:
        path_or_hub_id: a checkpoint folder or hub id, whose weights are not looked at; None for as nothing.

    Raises:
        InputError: there is no such folder, or it has no config.
    """
    if path_or_hub_id is None:
        bare.use(None)
        return
    path = expanded(path_or_hub_id)
    if not path.exists() and not _HUB_ID.fullmatch(path_or_hub_id):
        raise InputError(f"architecture is {path_or_hub_id}; there is no such folder{beside(path)}")
    bare.use(path if path.exists() else _download(path_or_hub_id, weights=False))


def _way_on(hub_id: str, error: Exception) -> str:
    """The way on where a model of the hub cannot be reached."""
    if close := beside(expanded(hub_id)):
        return close.removeprefix("; ")
    return f"{unreachable(error)}, or give a folder that holds the model"


def unreachable(error: BaseException) -> str:
    """The way on where the hub does not give something.

    Args:
        error: of its client.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return "HF_HUB_OFFLINE is set, so nothing is downloaded: unset it"
    if any(word in type(error).__name__ for word in _NOT_FOUND):
        return "check the name, and log in (hf auth login, or HF_TOKEN) where it is private or gated"
    return "check the network (HTTPS_PROXY for a proxy, HF_ENDPOINT for a mirror, HF_HOME for another cache)"


def _download(hub_id: str, weights: bool = True) -> Path:
    # Imported when needed, as folders on this machine are read without.
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    from fusionlab.checkpoints.quiet import quiet  # noqa: PLC0415

    try:
        with quiet():
            folder = Path(snapshot_download(hub_id, allow_patterns=[*_DESCRIPTION, *(_SAFETENSORS if weights else ())]))
            if weights and not any(any(folder.glob(pattern)) for pattern in _SAFETENSORS):
                snapshot_download(hub_id, allow_patterns=[*_DESCRIPTION, *_PICKLES])
            if weights and (inside := _of_modules(folder)):
                snapshot_download(hub_id, allow_patterns=[*_DESCRIPTION, *inside])
    except Exception as error:
        # Hub, cache and network fail in the exceptions of whichever client library is installed.
        raise InputError(
            f"{hub_id}: there is no such file or folder, and no model of that name could be reached on the "
            f"Hugging Face hub or in its local cache ({type(error).__name__}); {_way_on(hub_id, error)}"
        ) from error
    return folder


def _of_modules(folder: Path) -> list[str]:
    """The files in which modules of a sentence-transformers folder may have weights that are not here."""
    try:
        modules = sentence_modules(folder) or ()
    except InputError:
        return []  # told by what reads them
    without = [module.folder for module in modules if module.file is None]
    return [f"{place}/{name}" for place in without for name in (SAFETENSORS, PICKLE)]
