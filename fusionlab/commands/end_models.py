"""End models as a grid's config names them: given as checkpoints, or trained by a config of `fusionlab fit`."""

import copy
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import LightningDataModule, LightningModule

from fusionlab import configs
from fusionlab.atomic import atomic_file
from fusionlab.commands import parsing, train
from fusionlab.errors import InputError, first_line
from fusionlab.grid.design import EndModel

EXPORT, UNION = "fusionlab.tasks.ExportCheckpoint", "fusionlab.data.Union"


@dataclass(frozen=True)
class EndModelOptions:
    """One end model of a grid in a config.

    Attributes:
        data: its data module; that of the config which trains it if None.
        ckpt: where its checkpoint is; ``{seed}`` stands for the seed.
        fit: in place of a checkpoint, the config of `fusionlab fit` that trains it.
        options: values of that config to change, by dotted keys; a ``seed_everything`` is added to the grid's seed.
    """

    data: LightningDataModule | None = None
    ckpt: str | None = None
    fit: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def end_model(self, name: str) -> EndModel:
        """The end model, its data found.

        Raises:
            InputError: no data, or not exactly one of a checkpoint and a config.
        """
        if self.fit is None:
            if self.options:
                raise InputError(f"{name} has options, which change a config, but no config (fit); expected both")
            if self.data is None:
                raise InputError(f"{name} has no data; expected data, or a config (fit) that names some")
            return EndModel(self.data, self.ckpt)
        settings = _settings(self.fit, self.options)
        data = _data(settings, self.fit) if self.data is None else self.data
        return EndModel(data, self.ckpt, settings)

    def multitask_model(self, ends: Mapping[str, EndModel]) -> EndModel:
        """The model to compare merges with: its training data are those of all end models together.

        That is so where all end models are trained on the way; else its data are those of its own config.

        Args:
            ends: the end models.

        Raises:
            InputError: as `end_model`.
        """
        if self.fit is None or not ends or any(end.fit is None for end in ends.values()):
            return self.end_model("multitask")
        parts = [end.fit["data"] for end in ends.values() if end.fit is not None]
        settings = _settings(self.fit, self.options) | {"data": {"class_path": UNION, "init_args": {"parts": parts}}}
        return EndModel(_data(settings, self.fit), None, settings)


def train_end_model(model: EndModel, seed: int, path: Path) -> None:
    """Train one end model as `fusionlab fit` does; the config that was run is kept beside the checkpoint.

    Args:
        model: with a config to fit.
        seed: of weights and data order.
        path: the checkpoint folder to write.

    Raises:
        InputError: a config or an option of it that does not exist.
    """
    assert model.fit is not None
    settings = copy.deepcopy(dict(model.fit))
    # Models that differ in nothing but their seed each name one; the grid's seeds count on from there.
    settings["seed_everything"] = seed + int(settings["seed_everything"])
    trainer = settings.setdefault("trainer", {})
    others = [c for c in trainer.get("callbacks") or [] if not str(c.get("class_path")).endswith("ExportCheckpoint")]
    trainer["callbacks"] = [*others, {"class_path": EXPORT, "init_args": {"output": str(path)}}]
    logs = path.with_name(f"{path.name}.logs")
    trainer["default_root_dir"] = str(logs)
    trainer["logger"] = False
    config = path.with_name(f"{path.name}.yaml")
    with atomic_file(config, overwrite=True) as temporary_config:
        temporary_config.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    train.run("fit", ["--config", str(config)])
    if not path.exists():
        raise InputError(f"{config} wrote no checkpoint; expected a model that can be exported")
    # The best epoch is the checkpoint; what Lightning wrote on the way is as large as that, for every end model.
    shutil.rmtree(logs, ignore_errors=True)


def _settings(fit: str, options: dict[str, Any]) -> dict[str, Any]:
    """A config with some values changed."""
    path = configs.resolve(fit)
    configs.refuse_unfit(path)
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no YAML file ({first_line(error)}); expected a config of fusionlab fit") from error
    if not isinstance(settings, dict):
        raise InputError(f"{path} holds no settings; expected a config of fusionlab fit")
    for key, value in options.items():
        *parents, last = key.split(".")
        place = settings
        for parent in parents:
            if not isinstance(place.get(parent), dict):
                raise InputError(f"options names {key!r}, but {fit} has no {parent!r} with values in it")
            place = place[parent]
        place[last] = value
    return settings | {"seed_everything": options.get("seed_everything", 0)}


def fresh_task(model: EndModel) -> LightningModule:
    """The task that an end model is trained as, before training.

    Args:
        model: with a config to fit.

    Raises:
        InputError: a config that makes none, or a model that cannot be read.
    """
    settings = model.fit or {}
    if "model" not in settings:
        raise InputError("a config of an end model names no task; expected one under model")
    parser = parsing.make_parser("compare", "")
    parser.add_argument("--model", type=LightningModule)
    return parsing.built(parser, {"model": settings["model"]}).model


def _data(settings: dict[str, Any], fit: str) -> LightningDataModule:
    """The data module of a config."""
    if "data" not in settings:
        raise InputError(f"{fit} names no data; expected a data module under data")
    parser = parsing.make_parser("compare", "")
    parser.add_argument("--data", type=LightningDataModule)
    return parsing.built(parser, {"data": settings["data"]}).data
