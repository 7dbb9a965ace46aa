"""A model grown into a larger architecture, and the check that it computes what it computed."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic

import torch
from torch import Tensor, nn

from fusionlab.dtypes import in_types, main_dtype, types_of
from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import EXACT, random_logits
from fusionlab.forward import input_embeddings
from fusionlab.growing.axes import STREAMS, Widening
from fusionlab.growing.choices import Found, difference, exact_choice
from fusionlab.growing.cost import operations
from fusionlab.growing.embedding import Embedding
from fusionlab.growing.epsilons import epsilon_note, other_epsilon, other_epsilons
from fusionlab.growing.filling import filled
from fusionlab.growing.layers import Placement, lists_of, placements, renamed
from fusionlab.growing.likeness import unlikeness
from fusionlab.growing.refusals import unequal
from fusionlab.growing.target import larger_model
from fusionlab.inputs import Batches
from fusionlab.models import untie
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.any_model import blueprint
from fusionlab.symmetry.blueprint import FOLDED
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.inputs import Input
from fusionlab.symmetry.stacks import apart
from fusionlab.symmetry.unseen import note_unseen
from fusionlab.types import Model

CONFIG_ALONE = (
    "the larger one is a config alone; expected a model, to align layers by its activations (data) or to take what is "
    "new from it (fill)"
)
# Random inputs that nothing was decided by.
OTHERS = {"seed": 1, "count": 8}


@dataclass(frozen=True)
class Growth(Generic[Model]):
    """A model in a larger architecture, and what was done to it.

    Attributes:
        model: the grown model.
        sizes: by role of a space, its smallest and largest size in the small model and in the grown one, where it grew.
        placements: the stacks of layers that grew, and where their layers went.
        parameters: how many numbers the small model has, and the grown one.
        operations: of products in one forward pass, of the small model and of the grown one.
        exact: largest difference of the logits of both in float64 on random inputs, relative to the largest.
        stored: the same of the grown model as it is stored, in its own dtype: the rounding.
        epsilons: fields of the configs that are epsilons of norms and differ, before and after.
        longer: the factor of all that is written to streams that makes good for that, 1 for none.
        effect: what another epsilon does to the logits where nothing makes good for it, relative to the largest;
            `exact` is beside it and `stored` with it.
    """

    model: Model
    sizes: dict[str, tuple[tuple[int, int], tuple[int, int]]]
    placements: tuple[Placement, ...]
    parameters: tuple[int, int]
    operations: tuple[int, int]
    exact: float
    stored: float
    epsilons: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    longer: float = 1.0
    effect: float = 0.0

    @property
    def notes(self) -> list[str]:
        """Sentences on what else is to be known."""
        return [note for note in [epsilon_note(self.epsilons, self.longer, self.effect)] if note]


@torch.no_grad()
def grown(model: Model, like: Any, data: Batches | None = None, fill: bool = False) -> Growth[Model]:
    """A model embedded into a larger architecture, exactly: the same function with more of everything.

    Streams are as long an entry on average as before, so that norms act as they did, epsilon included; new units, heads
    and layers write nothing, and queries of wider heads grow by the root of the ratio that their scores are divided by.
    Layers go where the activations of `data` are most alike, in order (linear CKA, Kornblith et al., "Similarity of
    neural network representations revisited", 2019, equation 5); without data each stands at the end of its share of
    the larger stack, where its output is as deep as in the small one.

    Args:
        model: the small model; not modified.
        like: a model of the same class that is as large in every dimension, or a config of one.
        data: batches of inputs that both models take, labels not needed; `like` must be a model then.
        fill: whether what is new and changes nothing is taken from `like`, and not zero (see `filling`): for models
            that will be matched and merged. `like` must be a model then.

    Raises:
        InputError: what cannot be grown: another class or vocabulary, a dimension in which the larger model is smaller,
            or one in which no exact embedding is known; or a result that is not exact, so nothing is returned.
        SymmetryError: an architecture whose blueprint is not found.
    """
    large = larger_model(model, like)
    small = untied_as(model, large).eval()
    if not isinstance(like, nn.Module) and (fill or data is not None):
        raise InputError(CONFIG_ALONE)
    lists = lists_of(blueprint(small).stacks)
    costs = None if data is None else unlikeness(small, like, data, lists)
    places = placements(small, large, costs, lists)
    large = in_types(large, _types(small, large, places)).eval()
    embedding = embedding_of(small, large, places)
    inputs = embedding.small.inputs
    reference = random_logits(copy.deepcopy(small).double(), inputs)
    state, found = exact_embedding(embedding, small, large, reference)
    widening, exact = found.widening, found.error
    unseen: dict[str, Tensor] = {}
    if fill:
        state, unseen, exact = _filled(state, widening, embedding, large, like, exact)
    _load(large, state, embedding)
    note_unseen(large, unseen)
    stored = _difference(copy.deepcopy(large).double(), reference, inputs)
    deeper = tuple(placement for placement in places if placement.deepens)
    counts, costs_of_pass = (
        (numbers_of(small), numbers_of(large)),
        (operations(small, inputs), operations(large, inputs)),
    )
    sizes, longer = grown_sizes(embedding.small, widening), widening.choice.stretch.length
    return Growth(
        large, sizes, deeper, counts, costs_of_pass, exact, stored, other_epsilons(small, large), longer, found.effect
    )


def _filled(
    state: dict[str, Tensor], widening: Widening, embedding: Embedding, large: nn.Module, like: nn.Module, exact: float
) -> tuple[dict[str, Tensor], dict[str, Tensor], float]:
    """The parameters with what changes nothing taken from the larger model, where that is, and the error.

    They are what was given where other inputs than those that filling looks at tell of a change.
    """
    trial, inputs = copy.deepcopy(large).double(), embedding.small.inputs
    _load(trial, state, embedding)
    reference = random_logits(trial, inputs, **OTHERS)
    new = {name: embedding.new(name, widening) for name in embedding.fresh}
    found, unseen = filled(state, new, trial, embedding.large, like)
    _load(trial, found, embedding)
    error = _difference(trial, reference, inputs, **OTHERS)
    return (found, unseen, max(exact, error)) if error <= EXACT else (state, {}, exact)


def exact_embedding(
    embedding: Embedding, small: nn.Module, large: nn.Module, reference: Tensor
) -> tuple[dict[str, Tensor], Found]:
    """The first parameters of the grown model that compute what the small model does, and what made them.

    Args:
        embedding: the two models side by side.
        small: the small model.
        large: one of the larger architecture; not modified.
        reference: what the small model computes.

    Raises:
        InputError: none do.
    """
    trial = copy.deepcopy(large).double()

    def compute(widening: Widening) -> Tensor:
        _load(trial, embedding.made(widening), embedding)
        return random_logits(trial.eval(), embedding.small.inputs)

    def with_numbers(changed: nn.Module) -> Tensor:
        changed.double().load_state_dict(small.state_dict())
        return random_logits(changed, embedding.small.inputs)

    found = exact_choice(embedding, small, large, compute, reference, other_epsilon(small, large, with_numbers))
    return embedding.made(found.widening), found


def embedding_of(small: nn.Module, large: nn.Module, places: tuple[Placement, ...]) -> Embedding:
    """The two models side by side, folded where a stream gets wider and can be folded.

    Args:
        small: the small model.
        large: one of the larger architecture.
        places: where layers go.
    """
    found = side_by_side(small, large, places)
    # Folding rounds to the type that it is given.
    state = found.small.stacked(copy.deepcopy(small).double().state_dict())
    return replace(found, state=fold(state, found.small) if found.small.folded else state)


def side_by_side(small: nn.Module, large: nn.Module, places: tuple[Placement, ...]) -> Embedding:
    """The two models side by side, in the gauge that they are grown in, the small one's parameters as they are.

    Args:
        small: the small model, which may be without numbers.
        large: one of the larger architecture; of its parameters only vectors need numbers.
        places: where layers go.
    """
    ours, theirs = blueprint(small), blueprint(large)
    if (
        stream_sizes(ours) != stream_sizes(theirs)
        and ours.after_folding is not None
        and theirs.after_folding is not None
    ):
        ours, theirs = ours.in_gauge((FOLDED,)), theirs.in_gauge((FOLDED,))
    state, fresh = ours.stacked(small.state_dict()), theirs.stacked(large.state_dict())
    there, tokens = (frozenset(renamed(name, places) for name in names) for names in _looked_up(small))

    def refuse(name: str, size: int | None, larger: int | None) -> InputError:
        return InputError(unequal(small, large, name, size, larger))

    return Embedding(ours, theirs, state, fresh, places, there, tokens, is_tied(small), refuse)


def _load(model: nn.Module, state: Mapping[str, Tensor], embedding: Embedding) -> None:
    """Give a module of the larger architecture its parameters, which are named as the blueprint names them."""
    model.load_state_dict(apart(state, embedding.large.stacks))


def _difference(model: nn.Module, reference: Tensor, inputs: Sequence[Input], **which: int) -> float:
    """The largest difference of a model's logits from others, relative to the largest of those."""
    return difference(random_logits(model.eval(), inputs, **which), reference)


def _types(small: nn.Module, large: nn.Module, places: Sequence[Placement]) -> dict[str, torch.dtype]:
    """The types of the grown model's numbers: the small model's, and its commonest where it has none."""
    main = main_dtype(small.state_dict())
    new = {name: main for name, dtype in types_of(large).items() if dtype.is_floating_point}
    return new | {renamed(name, places): dtype for name, dtype in types_of(small).items()}


def untied_as(model: Model, large: nn.Module) -> Model:
    """The small model, its output embeddings untied where the larger one's are.

    Raises:
        InputError: they are not tied, and the larger one's are.
    """
    return untie(model) if is_tied_otherwise(model, large) else copy.deepcopy(model)


def is_tied_otherwise(model: nn.Module, large: nn.Module) -> bool:
    """True if the small model's output embeddings are tied and the larger one's are not.

    Raises:
        InputError: they are not tied, and the larger one's are.
    """
    if is_tied(large) and not is_tied(model):
        raise InputError(
            "the larger model's output embeddings are its input embeddings, and the small model has some of its own; "
            "expected a config with tie_word_embeddings false"
        )
    return is_tied(model) and not is_tied(large)


def is_tied(model: nn.Module) -> bool:
    """True if a model's output embeddings are its input embeddings."""
    table, get_output = input_embeddings(model), getattr(model, "get_output_embeddings", None)
    output = None if get_output is None else get_output()
    return table is not None and getattr(output, "weight", None) is table.weight


def _looked_up(model: nn.Module) -> tuple[frozenset[str], frozenset[str]]:
    """The names of all tables of embeddings, and of those of the tokens; every name of those that are tied."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    table = input_embeddings(model)
    named = list(model.named_parameters(remove_duplicate=False))
    tokens = frozenset(name for name, p in named if table is not None and p is table.weight)
    return frozenset(name for name, p in named if id(p) in embeddings), tokens


def stream_sizes(blueprint: Blueprint) -> dict[str, int]:
    """The width of every stream, by the name of its space."""
    return {s.name: s.group.size for s in blueprint.spaces.values() if s.role in STREAMS and not s.index}


def grown_sizes(small: Blueprint, widening: Widening) -> dict[str, tuple[tuple[int, int], tuple[int, int]]]:
    """The smallest and largest sizes of the spaces that grew, before and after, by role.

    Args:
        small: the small model's blueprint.
        widening: of all its parameters.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    for name, pair in widening.sizes.items():
        # Signs and factors of single coordinates are as many as what they belong to.
        if pair != (1, 1):
            found.setdefault(str(small.spaces[name].role), []).append(pair)
    found |= {"heads": sorted(widening.heads), "key-value heads": sorted(widening.pairs - widening.heads)}
    grew = {role: list(zip(*pairs, strict=True)) for role, pairs in found.items() if any(a != b for a, b in pairs)}
    return {role: ((min(few), max(few)), (min(many), max(many))) for role, (few, many) in grew.items()}


def numbers_of(model: nn.Module) -> int:
    """The count of a model's parameters, each once."""
    return sum(parameter.numel() for parameter in model.parameters())
