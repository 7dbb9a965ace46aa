"""Fine-tunes of MiniLM on eight tasks of text, each with a head of its own, and what each task scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import seed_everything
from settings import Batch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from fusionlab.data import GLUE, NER, Emotion
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.models import with_state
from fusionlab.tasks import SequenceClassification, TokenClassification
from fusionlab.trainers import quiet_trainer

# Texts to train on, to choose by and to test on; those that methods look at without labels, where no number is said.
TRAINED, VALIDATED, TESTED, LOOKED_AT = 2_000, 300, 500, 256
EPOCHS, RATE, AT_ONCE, TOKENS = 4, 2e-4, 32, 64
PASSES: dict[str, Any] = {"accelerator": "cpu", "devices": 1, "precision": "bf16-mixed"}
EKMAN = ["anger", "disgust", "fear", "joy", "noemo", "sadness", "surprise"]
ENTITIES = ["O", *(f"{part}-{kind}" for kind in ("PER", "LOC", "ORG") for part in "BI")]
Kind = Literal["glue", "emotion", "entities"]


@dataclass(frozen=True)
class TextTask:
    """A task.

    Attributes:
        name: in tables.
        file: below the folder of texts.
        kind: of task.
        labels: of a classification; none for a number.
        options: of the data module, beside those that all have.
    """

    name: str
    file: str
    kind: Kind
    labels: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def data(self, folder: Path, base: str) -> Any:
        """The data module.

        Args:
            folder: of texts.
            base: whose tokenizer.
        """
        options: dict[str, Any] = {
            "path": str(folder / self.file), "tokenizer": base, "limit": TRAINED,
            "max_length": TOKENS, "batch_size": AT_ONCE, "group_by_length": True,
            "split_column": "split", **self.options,
        }  # fmt: skip
        if self.kind == "glue":
            return GLUE(**options)
        if self.kind == "emotion":
            return Emotion(labels=list(self.labels), **options)
        return NER(**options)

    def module(self, base: str) -> SequenceClassification | TokenClassification:
        """The LightningModule that fine-tunes the base model."""
        if self.kind == "entities":
            return TokenClassification(model=base, labels=ENTITIES, learning_rate=RATE)
        if self.kind == "emotion":
            return SequenceClassification(
                model=base, labels=list(self.labels), task="multilabel", class_weights="inverse", learning_rate=RATE
            )
        task: Any = "classification" if self.labels else "regression"
        labels = list(self.labels) or None
        return SequenceClassification(model=base, labels=labels, task=task, learning_rate=RATE)


def _glue(name: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "label_column": "label", "test_split": "validation", "val_size": VALIDATED, **options}


# The first two and the first four make smaller groups. CoLA is not among them: MiniLM did not learn it from 6,000
# sentences.
TASKS = (
    TextTask("SST-2", "glue/sst2.parquet", "glue", ("negative", "positive"), options=_glue("sst2")),
    TextTask(
        "ISEAR", "emotion/research_only/isear.parquet", "emotion",
        ("anger", "disgust", "fear", "guilt", "joy", "sadness", "shame"),
    ),
    TextTask("EWT entities", "ner/open/uner_english_ewt.parquet", "entities"),
    TextTask("STS-B", "glue/stsb.parquet", "glue", options=_glue(
        "stsb", label_column="score", val_split="validation", test_split="test", val_size=0
    )),
    TextTask("GoEmotions", "emotion/open/goemotions.parquet", "emotion", EKMAN),
    TextTask("Twitter entities", "ner/open/broad_twitter_corpus.parquet", "entities"),
    TextTask("SEC entities", "ner/open/sec_filings.parquet", "entities", options={"val_split": None, "val_size": 200}),
    TextTask(
        "CrowdFlower", "emotion/not_stated/crowdflower.parquet", "emotion",
        ("anger", "fear", "joy", "love", "noemo", "sadness", "surprise"),
    ),
)  # fmt: skip


class TextFamily:
    """MiniLM and its fine-tunes of one seed, one for each of `TASKS`, each with a head of its own.

    The pooler is counted with the head, since models for entities have none.

    Args:
        seed: of heads and order.
        folder: of end models; what is missing in it is trained.
        texts: folder of the data sets.
        base: MiniLM's folder, or its id.
    """

    names = tuple(task.name for task in TASKS)

    def __init__(self, seed: int, folder: Path, texts: Path, base: str) -> None:
        self.seed, self.folder = seed, folder
        self._texts, self._base = texts, base
        self._data: dict[int, Any] = {}
        self._batches: dict[tuple[int, str], list[Batch]] = {}

    @cached_property
    def base(self) -> nn.Module:
        """The base model under a fresh head."""
        return AutoModelForSequenceClassification.from_pretrained(self._base).eval()

    @cached_property
    def tuned(self) -> list[nn.Module]:
        """The fine-tunes."""
        return [self._tuned(place) for place in range(len(TASKS))]

    def body(self, model: nn.Module) -> dict[str, Tensor]:
        """A model's parameters but for its head and its pooler."""
        state = model.state_dict()
        return {name: x for name, x in state.items() if name.startswith("bert.") and ".pooler." not in name}

    def under(self, body: dict[str, Tensor], place: int) -> nn.Module:
        """A body under the head of a fine-tune."""
        return with_state(self.tuned[place], {**self.tuned[place].state_dict(), **body})

    @torch.no_grad()
    def score(self, model: nn.Module, place: int, split: str) -> float:
        """The main metric of a task.

        Args:
            model: under the head of that task.
            place: of the task.
            split: ``validation`` or ``test``.
        """
        data = self._of(place)
        scores = make_scores(model.eval(), data.task, data.class_names)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for batch in self._split(place, split):
                scores.update(model, batch)
        return scores.compute()[scores.main]

    def inputs(self, place: int, count: int | None = None) -> list[Batch]:
        """Training texts of a task, without labels.

        Args:
            place: of the task.
            count: how many, drawn by the seed of the models; the first 256 of all if None.
        """
        rows = self._of(place).train_dataloader().dataset
        if count is None:
            chosen = list(range(min(LOOKED_AT, len(rows))))
        else:
            draw = torch.Generator().manual_seed(self.seed)
            chosen = torch.randperm(len(rows), generator=draw)[:count].tolist()
        made = by_length(self._of(place).train_dataloader(), chosen)
        return [{name: value for name, value in batch.items() if name != "labels"} for batch in made]

    def _tuned(self, place: int) -> nn.Module:
        task, kept = TASKS[place], self.folder / str(self.seed) / str(place)
        kind = AutoModelForTokenClassification if task.kind == "entities" else AutoModelForSequenceClassification
        if not kept.exists():
            seed_everything(100 * self.seed + place, verbose=False)
            module: Any = task.module(self._base)
            trainer = quiet_trainer(max_epochs=EPOCHS, **PASSES, gradient_clip_val=1.0, limit_val_batches=0)
            trainer.fit(module, datamodule=self._of(place))
            module.model.save_pretrained(kept)
        return kind.from_pretrained(kept).eval()

    def _of(self, place: int) -> Any:
        if place not in self._data:
            data = self._data[place] = TASKS[place].data(self._texts, self._base)
            data.prepare_data()
            data.setup("fit")
        return self._data[place]

    def _split(self, place: int, split: str) -> list[Batch]:
        if (place, split) not in self._batches:
            data = self._of(place)
            loader = data.val_dataloader() if split == "validation" else data.test_dataloader()
            count = min(VALIDATED if split == "validation" else TESTED, len(loader.dataset))
            self._batches[place, split] = by_length(loader, list(range(count)))
        return self._batches[place, split]


def by_length(loader: Any, rows: Sequence[int], size: int = 64) -> list[Batch]:
    """Batches of some rows of a loader's data, short texts first, which saves padding."""
    data = loader.dataset
    ordered = sorted(rows, key=lambda row: len(data[row]["input_ids"]))
    parts = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return [dict(loader.collate_fn([data[row] for row in part])) for part in parts]
