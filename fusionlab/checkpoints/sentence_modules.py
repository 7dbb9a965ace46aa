"""The modules that a sentence-transformers folder has beside its transformer, such as pooling and layers of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, equal

from fusionlab.checkpoints.files import CONFIG, PICKLE, SAFETENSORS, read_json, read_pickle, read_safetensors
from fusionlab.errors import InputError
from fusionlab.finite import all_finite

MODULES = "modules.json"
# Kinds of modules that always have weights; others, such as those that someone wrote, may have none.
WITH_WEIGHTS = ("Dense", "LayerNorm", "WeightedLayerPooling", "CNN", "LSTM")
# What older versions write before the name of a way to pool.
_OLD = "pooling_mode_"
# Entries of configs that older versions leave out.
_SINCE_LATER = {"module_input_name", "module_output_name"}


@dataclass(frozen=True)
class SentenceModule:
    """One module of a sentence-transformers folder.

    Attributes:
        folder: that it lies in, in the checkpoint.
        kind: the name of its class, such as ``Pooling`` or ``Dense``.
        config: what it was made with.
        file: of its weights; None where it has none.
    """

    folder: str
    kind: str
    config: Mapping[str, Any]
    file: Path | None

    @property
    def pooling(self) -> tuple[str, ...]:
        """Of a pooling, the ways in which tokens become one embedding, such as ``mean``."""
        mode = self.config.get("pooling_mode")
        named = [mode] if isinstance(mode, str) else list(mode or ())
        old = (
            name.removeprefix(_OLD) for name, value in self.config.items() if name.startswith(_OLD) and value is True
        )
        return tuple(str(name).removesuffix("s").removesuffix("_token") for name in named or old)

    def does_as(self, other: SentenceModule) -> bool:
        """True if another module does the same, but for the numbers in its weights."""
        if (self.kind, self.file is None) != (other.kind, other.file is None):
            return False
        if self.kind == "Pooling":
            return self.pooling == other.pooling
        return all(self.config.get(n) == other.config.get(n) for n in {*self.config, *other.config} - _SINCE_LATER)

    def weights(self) -> dict[str, Tensor]:
        """Its weights by name.

        Raises:
            InputError: a file that is damaged, or holds anything but floating-point tensors.
        """
        assert self.file is not None
        state = read_safetensors(self.file) if self.file.suffix == ".safetensors" else read_pickle(self.file)
        for name, tensor in state.items():
            if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
                raise InputError(f"{self.file}: {name} is no tensor of floating-point numbers, which was expected")
            if not all_finite(tensor):
                raise InputError(f"{self.file}: parameter {name} holds NaN or infinite values; expected finite ones")
        return state


def sentence_modules(location: Path) -> list[SentenceModule] | None:
    """The modules of a checkpoint beside its transformer, in their order; None where it is of another kind.

    Args:
        location: the checkpoint's folder, or a file.

    Raises:
        InputError: a list of modules that is damaged, or a transformer elsewhere than in the folder itself.
    """
    path = location / MODULES
    if not path.is_file():
        return None
    found = []
    for entry in _listed(path):
        folder, kind = entry["path"], entry["type"].rpartition(".")[2]
        if not folder:
            continue
        if Path(folder).name != folder or folder in (".", ".."):
            raise InputError(f"{path} has a module in {folder!r}; expected the name of a folder beside it")
        place = location / folder
        files = [place / name for name in (SAFETENSORS, PICKLE) if (place / name).is_file()]
        config = read_json(place / CONFIG) if (place / CONFIG).is_file() else {}
        found.append(SentenceModule(folder, kind, config, files[0] if files else None))
    return found


def other_modules(one: Path, other: Path) -> list[str]:
    """The folders of modules of one checkpoint that another one has in another way: kind, config or weights.

    Args:
        one: folder of a checkpoint; of another kind than sentence-transformers it has no modules.
        other: to compare it with, of any kind.

    Raises:
        InputError: see `sentence_modules`; or weights that are damaged.
    """
    beside = {module.folder: module for module in sentence_modules(other) or ()}
    return [module.folder for module in sentence_modules(one) or () if not _is_same(module, beside.get(module.folder))]


def _is_same(module: SentenceModule, other: SentenceModule | None) -> bool:
    if other is None or not module.does_as(other):
        return False
    if module.file is None or other.file is None:
        return True
    own, others = module.weights(), other.weights()
    return own.keys() == others.keys() and all(equal(tensor, others[name]) for name, tensor in own.items())


def _listed(path: Path) -> list[dict[str, str]]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise InputError(f"{path} is not a readable JSON file; expected a list of modules") from error
    for entry in entries if isinstance(entries, list) else [None]:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in ("path", "type")):
            raise InputError(f"{path} holds {str(entry)[:80]}; expected a list of modules, each with a path and a type")
    return list(entries)
