"""Statistics of a grid's end models on disk: gathered once, though many groups and methods need them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch import nn

from fusionlab.fusion import STATISTICS, FusionModule
from fusionlab.grid.design import digest
from fusionlab.statistics import Statistics, basis_of
from fusionlab.statistics.files import load, save
from fusionlab.statistics.statistics import Activations


class StatisticsFiles:
    """One file for each end model, kind and way to gather it.

    Activations are not kept: they are compared between the models of a group, on inputs of that group.

    Args:
        folder: made when the first file is written.
        samples: how many samples of its own data each model is run on.
    """

    def __init__(self, folder: Path, samples: int | None) -> None:
        self.folder, self.samples = folder, samples

    def read(self, models: Iterable[nn.Module]) -> list[dict[str, Statistics]]:
        """Whatever there is of some end models."""
        found = [path for model in models for path in sorted(self.folder.glob(f"{self._name(model)}-*.safetensors"))]
        return [load(path) for path in found]

    def gather(self, module: FusionModule, method: str) -> None:
        """Let a module have what a method needs of its end models, and keep it."""
        kinds = [need for need in module.needs[method] if need in STATISTICS and need != Activations.kind]
        for index, model in enumerate(module.end_models):
            for kind, found in module.statistics_of(index, model, kinds, None).items():
                path = self.folder / f"{self._name(model)}-{kind}.safetensors"
                if not path.exists():
                    self.folder.mkdir(parents=True, exist_ok=True)
                    save([found], path)

    def _name(self, model: nn.Module) -> str:
        return digest([basis_of(model.state_dict()), self.samples])
