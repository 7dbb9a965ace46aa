"""Results of a fusion: candidates to be tested, matchings, distances; and the test sets they are tested on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.preservation import Preservation
from fusionlab.evaluation.results import Domain
from fusionlab.evaluation.scores import Scores, Task
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.evaluation.wording import listing, merge_name
from fusionlab.matching.recipe import Recipe
from fusionlab.search import Found, Settings
from fusionlab.symmetry import Alignment

if TYPE_CHECKING:  # the data modules' library takes most of a second
    from fusionlab.data.contract import DataFacts


@dataclass(frozen=True)
class TestSet:
    """A test loader's name, domain and task.

    Attributes:
        name: of the data.
        domain: whether the end models were trained on data like it.
        owner: place of the end model whose own data it is like; None for data of all or of none.
        task: how it is scored; the model's own task if None (see `make_scores`).
        class_names: of its labels, in order, where scores need them.
        options: further choices of the scores.
        tokenizer: of texts, by which they are read back; None where there are none.
    """

    __test__ = False

    name: str
    domain: Domain = "in"
    owner: int | None = None
    task: Task | None = None
    class_names: tuple[str, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Any = None

    @staticmethod
    def of(facts: DataFacts, name: str, domain: Domain = "in", owner: int | None = None) -> TestSet:
        """A test set that is scored as its data module says.

        Args:
            facts: of the data module.
            name: to show it under.
            domain: whether the end models were trained on data like it.
            owner: place of the end model whose own data it is like; None for data of all or of none.
        """
        return TestSet(
            name,
            domain,
            owner,
            task=facts.task,
            class_names=None if facts.class_names is None else tuple(facts.class_names),
            options={name: value for name in ("metric", "pooling") if (value := getattr(facts, name)) is not None},
            tokenizer=facts.tokenizer,
        )

    def scores(self, model: nn.Module) -> Scores:
        """New scores for a model on this data."""
        return make_scores(model, self.task, self.class_names, **self.options)


@dataclass
class Candidate:
    """One model to be tested: an end model, a merge or the ensemble.

    Attributes:
        models: names of the end models in it.
        method: the merge method, ``end model`` or ``ensemble``.
        matching: the matching's name, or ``none``; ``-`` for an end model and the ensemble.
        model: the model.
        seconds: time to match and merge.
        notes: what the merge method told, a sentence each, such as which models ``soup`` kept.
        settings: of the merge; None for an end model and the ensemble.
    """

    models: tuple[str, ...]
    method: str
    matching: str
    model: nn.Module
    seconds: float | None = None
    notes: Sequence[str] = ()
    settings: Settings | None = None


@dataclass(frozen=True)
class Matched:
    """Alignments and twins that one matching found for all end models.

    Attributes:
        alignments: one for each end model, in order.
        twins: the matched twins.
        preservation: how exactly each twin keeps its end model's function.
        seconds: time to match.
        recipe: that was followed.
    """

    alignments: Sequence[Alignment]
    twins: Sequence[nn.Module]
    preservation: Sequence[Preservation]
    seconds: float
    recipe: Recipe


@dataclass
class Fused:
    """Results of a fusion: all models to be tested, the matchings, distances to the anchor.

    Attributes:
        anchor: index of the model that the others were matched to.
        candidates: end models, then merges, in the order of the tables.
        matched: by matching, what it did.
        distances: to the anchor, by matching, role and layer.
        kept: the merge to keep: of the first matching (unmatched, if there is none) by the first method.
        search: the trials of a search of its settings; None if there was none.
    """

    anchor: int = 0
    candidates: list[Candidate] = field(default_factory=list)
    matched: dict[str, Matched] = field(default_factory=dict)
    distances: list[Distance] = field(default_factory=list)
    kept: Candidate | None = None
    search: Found | None = None

    @property
    def notes(self) -> list[str]:
        """All that merge methods told, each sentence once, behind the names of the merges that it is about."""
        about: dict[str, list[str]] = {}
        for one in self.candidates:
            for note in one.notes:
                about.setdefault(note, []).append(merge_name(one.method, one.matching))
        return [f"{listing(names)}: {note}" for note, names in about.items()]
