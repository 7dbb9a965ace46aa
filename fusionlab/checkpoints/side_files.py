"""Side files: what a model is used with beside its weights, told from all else in a checkpoint's folder."""

import json
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from fusionlab.checkpoints.files import ADAPTER_CONFIG, CONFIG, GENERATION_CONFIG

# What was said of one model and is not true of another: its card, licence, results and the state of its training. Code
# that came with it is never run, and not handed on either.
_OF_ONE_MODEL = re.compile(
    r"(readme|license|licence|notice|copying|use_policy|acceptable_use).*|.*\.(md|py|pyc|log|csv|tsv|jsonl|html|pdf|png|jpe?g|"
    r"gif|svg|pkl|pickle|joblib)|(training_args|trainer_state|mergekit_config|fusionlab|wandb).*|(.*_)?(results|eval)\.json",
    re.IGNORECASE,
)
# Side files are vocabularies and processors; anything above this is data, not description.
SIDE_FILE_BYTES = 64 * 2**20
_WEIGHT_SUFFIXES = {
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".gguf", ".npz", ".ot", ".tflite",
}  # fmt: skip
# Files that hold the tokens of a tokenizer, or its words and pieces; and those that stand beside them.
_TOKENS = re.compile(r"tokenizer\.json|vocab\..*|.*\.(model|spm|tiktoken)|tekken\.json|merges\.txt")
_OF_TOKENIZER = re.compile(
    rf"{_TOKENS.pattern}|tokenizer_config\.json|(special_tokens_map|added_tokens)\.json|chat_template.*"
)
_MODULES = "modules.json"
# The folder of a tokenizer's chat templates beside its first.
_TEMPLATES = "additional_chat_templates"
# What describes an adapter, or a model that is another one with it.
_OF_ADAPTER = {ADAPTER_CONFIG, CONFIG, GENERATION_CONFIG, _MODULES}


def copy_side_files(source: Path, output: Path, leave_out: Collection[str] = (), adapter: Path | None = None) -> None:
    """Copy what a model is used with and is not written already: tokenizer, preprocessor and the like.

    Weights are not copied, and nothing that was said of the one model only: card, licence, results, code.

    Args:
        source: the checkpoint folder they come from.
        output: the folder being written; files that are already there are kept.
        leave_out: names of files that are not copied.
        adapter: the folder of an adapter on that checkpoint, whose own files come first.
    """
    left = set(leave_out)
    if adapter is not None and copy_of_adapter(adapter, output, leave_out):
        # A tokenizer is all of its files: tokens of one and settings of another would be neither.
        left |= {_TEMPLATES, *(file.name for file in source.iterdir() if _OF_TOKENIZER.fullmatch(file.name))}
    _copy(source, output, left)
    _copy_sentence_transformers_modules(source, output)


def copy_of_adapter(adapter: Path, output: Path, leave_out: Collection[str] = ()) -> bool:
    """Copy what an adapter is used with and is not written already.

    Args:
        adapter: its folder.
        output: the folder being written.
        leave_out: names of files that are not copied.

    Returns:
        Whether it has a tokenizer of its own.
    """
    names = _copy(adapter, output, {*leave_out, *_OF_ADAPTER})
    return any(_TOKENS.fullmatch(name) for name in names)


def _copy(source: Path, output: Path, leave_out: Collection[str]) -> list[str]:
    """Copy the side files of a folder; the names of all that it has."""
    names = []
    for file in sorted(source.iterdir()):
        if file.name in leave_out:
            continue
        small = file.is_file() and file.stat().st_size <= SIDE_FILE_BYTES
        weights = file.suffix in _WEIGHT_SUFFIXES or file.name.endswith((".index.json", ".lock"))
        # Contents only: a read-only or linked source must not make a read-only or linked copy.
        claims = file.name.startswith(".") or _OF_ONE_MODEL.fullmatch(file.name)
        if small and not weights and not claims:
            names.append(file.name)
            if not (output / file.name).exists():
                shutil.copyfile(file, output / file.name)
    templates = [] if _TEMPLATES in leave_out else sorted(source.glob(f"{_TEMPLATES}/*.jinja"))
    for file in templates:
        copied = output / _TEMPLATES / file.name
        if file.is_file() and file.stat().st_size <= SIDE_FILE_BYTES and not copied.exists():
            copied.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, copied)
    return names


def _copy_sentence_transformers_modules(source: Path, output: Path) -> None:
    """A sentence-transformers folder is only complete with the small module folders that it names."""
    modules = source / _MODULES
    if not modules.is_file():
        return
    try:
        listed = json.loads(modules.read_text(encoding="utf-8"))
        names = {entry["path"] for entry in listed}
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    for folder in source.iterdir():
        if folder.name in names and folder.is_dir() and not (output / folder.name).exists():
            shutil.copytree(folder, output / folder.name, ignore=_no_files, copy_function=shutil.copyfile)


def _no_files(folder: str, names: list[str]) -> set[str]:
    """The names in a folder that are neither files nor folders, such as devices, which have no end."""
    places = {name: Path(folder, name) for name in names}
    return {
        name for name, place in places.items() if not place.is_file() and (not place.is_dir() or place.is_symlink())
    }
