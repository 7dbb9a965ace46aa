"""The interface of all that depends on how heads are treated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor, nn

from fusionlab.evaluation.scores import Scores
from fusionlab.fusion.heads.of_base import FittedBase
from fusionlab.fusion.plan import FusionPlan
from fusionlab.fusion.results import Candidate, TestSet
from fusionlab.inputs import Inputs
from fusionlab.matching.align_models import Aligned
from fusionlab.matching.recipe import Recipe
from fusionlab.matching.workplace import HERE, Workplace
from fusionlab.stages import Stages
from fusionlab.statistics import Statistics
from fusionlab.symmetry import Alignment, Blueprint

State = dict[str, Tensor]
StatisticsByKind = Mapping[str, Statistics]
# Merges states that share a basis, with the statistics of each.
MergeStates = Callable[[Sequence[State], Sequence[StatisticsByKind]], State]


class HeadStrategy(ABC):
    """One way to treat the heads of the models that are fused; made for one fusion by its class method `of`.

    Attributes:
        models: the end models by name, with the heads that this way gives them.
        known: for each model which labels it knows, bool of shape ``(labels,)``; None where all know all.
        takes_any_order: whether labels of data are put in their places by name, wherever they stand.
    """

    takes_any_order = False

    def __init__(self, models: Mapping[str, nn.Module]) -> None:
        self.models = dict(models)
        self.known: Sequence[Tensor] | None = None

    @abstractmethod
    def refuse(self, plan: FusionPlan, needs: Mapping[str, Sequence[str]]) -> None:
        """Refuse what these heads rule out, before any work.

        Args:
            plan: of the fusion.
            needs: of each merge method, by name.

        Raises:
            InputError: a matching, method or option that compares what the merge and its end models compute, where
                their heads do not let it.
        """

    @abstractmethod
    def blueprint(self) -> Blueprint:
        """The blueprint of what is merged.

        Raises:
            InputError: models that do not fit each other.
        """

    @abstractmethod
    def refuse_misfits(self) -> None:
        """Refuse models that do not fit each other, as far as that is known without their symmetry.

        Raises:
            InputError: models that do not fit each other.
        """

    def described(self, is_needed: bool) -> Blueprint:
        """The blueprint of what is merged; one that says nothing where none is needed, so that nothing is traced.

        Args:
            is_needed: whether something is matched, or merged by its symmetry.

        Raises:
            InputError: models that do not fit each other.
            SymmetryError: it is needed, and none is found.
        """
        if is_needed:
            return self.blueprint()
        self.refuse_misfits()
        return Blueprint(type(next(iter(self.models.values()))).__name__, {}, {})

    @abstractmethod
    def states(self, models: Sequence[nn.Module]) -> list[State]:
        """The parameters of each model that are merged."""

    @abstractmethod
    def base(self, base: nn.Module) -> FittedBase:
        """The base model in the end models' class, once it is known to fit them.

        Raises:
            InputError: it does not.
        """

    @abstractmethod
    def moved(self, model: nn.Module, alignment: Alignment) -> State:
        """The merged parameters of a model in another basis."""

    @abstractmethod
    def gauges(self, models: Sequence[nn.Module], blueprint: Blueprint, recipe: Recipe) -> list[Alignment]:
        """Alignments that bring each model into the gauge of a recipe, and no model nearer to another."""

    @abstractmethod
    def align(
        self,
        models: Sequence[nn.Module],
        blueprint: Blueprint,
        recipe: Recipe,
        anchor: int,
        inputs: Inputs | None,
        name: str,
        place: Workplace = HERE,
    ) -> Stages[Aligned]:
        """An alignment for each model, and the recipe that was followed.

        Args:
            models: in order.
            blueprint: of what is merged.
            recipe: how they are matched.
            anchor: index of the model that the others are matched to.
            inputs: what matching may look at.
            name: of the matching, for progress bars and logs.
            place: where the matching is computed.
        """

    @abstractmethod
    def combine(
        self,
        merge: MergeStates,
        models: Sequence[nn.Module],
        statistics: Sequence[StatisticsByKind],
        weights: Sequence[float],
        anchor: int,
    ) -> nn.Module:
        """The merge of models that share a basis.

        Args:
            merge: merges the states of what is merged.
            models: end models, or their twins.
            statistics: of each.
            weights: of each.
            anchor: index of the model whose unmerged parts the merge has.
        """

    @abstractmethod
    def scored(self, candidate: Candidate, test_set: TestSet) -> nn.Module | None:
        """The model that answers for a candidate on a test set; None where the set is not its task."""

    def scores(self, model: nn.Module, test_set: TestSet) -> Scores:
        """New scores of a candidate on a test set.

        Args:
            model: that answers for it.
            test_set: whose batches come from `labels`.
        """
        return test_set.scores(model)

    @abstractmethod
    def labels(self, batch: Mapping[str, Tensor], test_set: TestSet) -> Mapping[str, Tensor]:
        """A batch whose labels are places among the labels of the candidates."""
