"""Statistics of a grid's end models on disk: gathered once, though many groups and methods need them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import nn

from fusionlab.fusion.fuser import Fuser
from fusionlab.grid.design import Grid
from fusionlab.grid.fingerprints import digest
from fusionlab.stages import Stages
from fusionlab.statistics import Statistics, basis_of
from fusionlab.statistics.files import load, save
from fusionlab.statistics.statistics import Activations


class StatisticsFiles:
    """One file for each end model, kind and way to gather it.

    A file's name follows from all that its numbers do: the model's weights and data, how many samples are drawn with
    which seed, the precision of the passes, and whose labels Fisher information takes. Activations are not kept: they
    are compared between the models of a group, on inputs of that group.

    Args:
        folder: made when the first file is written.
        grid: whose end models these are.
        precision: of the passes; None for the usual one.
    """

    def __init__(self, folder: Path, grid: Grid, precision: str | None = None) -> None:
        self.folder, self.grid, self.precision = folder, grid, precision

    def read(self, models: Mapping[str, nn.Module], seed: int) -> list[dict[str, Statistics]]:
        """The statistics that are on disk of some end models by name, gathered with a seed."""
        names = [self._name(name, model, seed) for name, model in models.items()]
        return [load(path) for name in names for path in sorted(self.folder.glob(f"{name}-*.safetensors"))]

    def gather(self, fuser: Fuser, method: str) -> Stages[None]:
        """Gather what a method needs of a fuser's end models, and write it where there is no file yet."""
        kinds = [kind for kind in fuser.kinds_of(method) if kind != Activations.kind]
        for index, (name, model) in enumerate(zip(fuser.names, fuser.end_models, strict=True)):
            gathered = yield from fuser.store.of(index, model, kinds)
            for kind, found in gathered.items():
                path = self.folder / f"{self._name(name, model, fuser.plan.seed)}-{kind}.safetensors"
                if not path.exists():
                    self.folder.mkdir(parents=True, exist_ok=True)
                    # Another process may have written the same meanwhile.
                    save([found], path, overwrite=True)

    def _name(self, name: str, model: nn.Module, seed: int) -> str:
        data = self.grid.signature(self.grid.end_models[name].data)
        labels = self.grid.methods.get("fisher", {}).get("labels")
        other = [] if self.precision is None else [self.precision]
        return digest([basis_of(model.state_dict()), data, self.grid.samples, seed, labels, *other])
