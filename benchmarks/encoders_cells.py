"""What is measured of two BERTs from different seeds, fine-tuned on two sets of emotions: cells of one pair."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import yaml
from cells import Cells
from encoders_ways import AT_ONCE, STEPS
from pair_plan import Job, PairCells, Seeds
from same_base_text_models import by_length
from settings import Batch, ready
from torch import nn
from ways import make

import fusionlab
from fusionlab import configs
from fusionlab.commands.end_models import EndModelOptions, train_end_model
from fusionlab.evaluation.ensemble import Ensemble
from fusionlab.evaluation.task_scores import make_scores

# How an encoder is pretrained, and the grid that says how it is fine-tuned on each set.
ENCODER, GRID = "bert_small_mlm.yaml", "bert_small_pairs.yaml"
SETS = {"isear": "research_only/isear.parquet", "xed_en": "open/xed_en.parquet"}
GOEMOTIONS = "open/goemotions.parquet"
SMALL: Mapping[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


class BertPair(PairCells):
    """A BERT that was fine-tuned on the first set, one of another seed that was on the second, and cells about them.

    Args:
        split: ``tuning``, scored on validation texts, or ``test``.
        seeds: of both.
        cells: where what is measured is kept.
        args: of the command.
    """

    def __init__(self, split: str, seeds: Seeds, cells: Cells, args: argparse.Namespace) -> None:
        super().__init__(split, seeds, cells, "scores")
        self.args = args
        self._fine = yaml.safe_load(configs.resolve(GRID).read_text(encoding="utf-8"))["end_models"]

    def end(self, place: int, seed: int) -> nn.Module:
        """The fine-tune on the set in this place, trained where it is not in the folder."""
        return fusionlab.load(self._fine_tune(list(SETS)[place], seed))

    def reached(self) -> dict[str, list[Any]]:
        """What both and their ensemble reach on each set."""
        return {"ends": [self._scores(end) for end in self.ends], "ensemble": self._scores(Ensemble(self.ends))}

    def made(self, job: Job) -> dict[str, Any]:
        """The scores on each set of the model that a way makes."""
        inputs = None if job.way.seen == "none" else self._inputs
        learning = {"steps": 1 if self.args.small else job.steps or STEPS, "batch_size": AT_ONCE}
        made = make(job.way, job.given, self.ends, inputs, learning, job.seed or 0)
        return {"scores": self._scores(made.model), "seconds": made.seconds}

    def _scores(self, model: nn.Module) -> list[float]:
        """Macro F1 on each set."""
        found = []
        for data, batches in zip(self._data, self._scored, strict=True):
            scores = make_scores(model.eval(), data.task, data.class_names)
            for batch in batches:
                scores.update(model, batch)
            found.append(float(scores.compute()[scores.main]))
        return found

    @cached_property
    def _data(self) -> list[Any]:
        found = []
        for name in SETS:
            data: Any = self._tuned(name, "").end_model(name).data
            ready(data)
            found.append(data)
        return found

    @cached_property
    def _inputs(self) -> list[list[Batch]]:
        """All training texts of each set, without labels."""
        loaders = [data.train_dataloader() for data in self._data]
        made = [by_length(loader, range(len(loader.dataset))) for loader in loaders]
        return [[{key: x for key, x in batch.items() if key != "labels"} for batch in batches] for batches in made]

    @cached_property
    def _scored(self) -> list[list[Batch]]:
        """Texts of each set with labels, which nothing else sees."""
        loaders = [data.val_dataloader() if self.split == "tuning" else data.test_dataloader() for data in self._data]
        return [by_length(loader, range(len(loader.dataset))) for loader in loaders]

    def _tuned(self, name: str, encoder: str) -> EndModelOptions:
        """How an encoder is fine-tuned on a set."""
        options = {
            **self._fine[name]["options"],
            "model.init_args.model": encoder,
            "data.init_args.path": str(self.args.texts / SETS[name]),
            "data.init_args.tokenizer": str(self.args.tokenizer),
        }
        if self.args.small:
            options["trainer.max_epochs"] = 1
        return EndModelOptions(fit=self._fine[name]["fit"], options=options)

    def _fine_tune(self, name: str, seed: int) -> str:
        """The folder of a fine-tune."""
        place = self.args.models / f"bert_small_{name}_seed{seed}"
        if not place.exists():
            train_end_model(self._tuned(name, self._encoder(seed)).end_model(name), seed, place)
        return str(place)

    def _encoder(self, seed: int) -> str:
        """The folder of an encoder."""
        place = self.args.models / f"bert_small_mlm_seed{seed}"
        if not place.exists():
            options: dict[str, Any] = {
                "data.init_args.path": str(self.args.texts / GOEMOTIONS),
                "data.init_args.tokenizer": str(self.args.tokenizer),
            }
            if self.args.small:
                options |= {f"model.init_args.model.{field}": value for field, value in SMALL.items()}
                options["trainer.max_epochs"] = 1
            train_end_model(EndModelOptions(fit=ENCODER, options=options).end_model("encoder"), seed, place)
        return str(place)
