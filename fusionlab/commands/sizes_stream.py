"""Models of files that are of different sizes: the smaller ones grown beside the output, a part at a time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from fusionlab.atomic import MIB, require_space, scratch_folder
from fusionlab.checkpoints.side_files import copy_side_files
from fusionlab.commands.grow_files import GrowingFiles
from fusionlab.commands.match_parts import NotByPartsError, leave_to_memory, made_of, refuse_timm
from fusionlab.commands.merge_output import progress
from fusionlab.growing import Growth, told
from fusionlab.growing.several import before, to_one_size
from fusionlab.streaming import StoredModel, open_folder
from fusionlab.streaming.larger import larger
from fusionlab.streaming.shards import ONE_FILE, largest_file


@dataclass(frozen=True)
class OneSize:
    """Models of files, all of one size.

    Attributes:
        given: as they came, by name.
        models: of one size.
        growths: of those that grew.
        seconds: that growing took.
    """

    given: Mapping[str, StoredModel]
    models: Mapping[str, StoredModel]
    growths: Mapping[str, Growth[Any]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def notes(self) -> list[str]:
        """A sentence on what was grown."""
        return [f"{told(self.growths)}."] if self.growths else []


@contextmanager
def of_one_size(models: Mapping[str, StoredModel], output: Path, fill: bool, may_grow: str | None) -> Iterator[OneSize]:
    """Models of one size: those that are smaller than another grown, and filled where they will be matched.

    The grown ones lie beside the output, and are removed at the end.

    Args:
        models: by name, of classes that transformers has.
        output: that is to be written.
        fill: whether what is new and changes nothing is taken from the model that is grown to.
        may_grow: why models of different sizes are for memory, or None.

    Raises:
        InputError: models that cannot become one size.
        NotByPartsError: they must be grown in memory.
    """
    like, names = (None, []) if _alike(models) else to_one_size(_made(models))
    if not names:
        yield OneSize(models, models)
        return
    if may_grow is not None:
        raise NotByPartsError(f"the models are of different sizes, and {may_grow}")
    with scratch_folder(output) as folder:
        start = time.perf_counter()
        sizes = _Sizes(models, like, folder)
        sizes.grow(names, fill, output)
        yield OneSize(models, {**models, **sizes.models}, sizes.growths, time.perf_counter() - start)


def _alike(models: Mapping[str, StoredModel]) -> bool:
    """True if all files hold the same shapes under the same names."""
    first, *others = ({name: one.shape for name, one in model.tensors.items()} for model in models.values())
    return all(other == first for other in others)


def _made(models: Mapping[str, StoredModel]) -> dict[str, nn.Module]:
    refuse_timm(models)
    return {name: one.model for name, one in made_of(models).items()}


class _Sizes:
    """Models that grow to one size, in folders of a scratch folder."""

    def __init__(self, given: Mapping[str, StoredModel], like: Any, folder: Path) -> None:
        self.given, self.like, self.folder = given, like, folder
        self.written = 0
        self.models: dict[str, StoredModel] = {}
        self.growths: dict[str, Growth[Any]] = {}

    def grow(self, names: Sequence[str], fill: bool, output: Path) -> None:
        """Grow some of the models, each as large as what all become as large as."""
        largest = next((model for name, model in self.given.items() if name not in names), None)
        for name in names:
            self._write(name, largest if fill else None, output)
        if fill and largest is None:
            for name, other in before(names).items():
                self._write(name, self.models[other], output)

    def _write(self, name: str, other: StoredModel | None, output: Path) -> None:
        """Write a model of files in the larger size, filled from another where one is given."""
        stored, folder = self.given[name], self.folder / str(self.written)
        self.written += 1
        if (both := larger(stored, self.like)) is None:
            raise NotByPartsError(f"the tensors of {name} are stored in another way than its class has them")
        growing = GrowingFiles(both, other)
        size = growing.size + growing.beside
        leave_to_memory(output, size + MIB, size, self.given.values())
        require_space(output, size + MIB, size)
        folder.mkdir()
        with progress("growing", growing.size) as advance:
            growth = growing.write(folder, largest_file(stored) or ONE_FILE, advance, self.folder / "scratch")
        copy_side_files(stored.location, folder, adapter=stored.adapter)
        opened = open_folder(stored.source, folder)
        assert opened is not None
        if name in self.models:
            shutil.rmtree(self.models[name].location)
        self.models[name], self.growths[name] = opened, growth
