"""Models under different heads, matched by their bodies alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.fusion.heads.parameters import base_module, head_parameters, prefix_of
from fusionlab.matching.align import align_states, gauged
from fusionlab.matching.options import Selection
from fusionlab.matching.workplace import HERE, Workplace
from fusionlab.models import with_state
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from fusionlab.types import Model, State


def body_states(models: Sequence[nn.Module], among: Sequence[nn.Module] = ()) -> list[dict[str, Tensor]]:
    """The parameters of each model's body, for the engine and the merge methods.

    A part of the body that some models do not have at all, as BERT's pooler is none of a model for tokens, counts with
    the heads of those that have it.

    Args:
        models: of one architecture under their heads.
        among: all models whose bodies are to be one; these alone if empty.

    Raises:
        InputError: bodies that differ in a name or a shape.
    """
    own, states = _own_parts(among or models), []
    for model in models:
        head = set(head_parameters(model))
        state = {name: tensor for name, tensor in model.state_dict().items() if name not in head}
        states.append({name: tensor for name, tensor in state.items() if not name.startswith(own)})
    for index, state in enumerate(states[1:], start=1):
        if odd := [name for name in {**states[0], **state} if _shape(states[0], name) != _shape(state, name)]:
            raise InputError(
                f"the bodies of model 0 and model {index} differ in {odd[0]!r}; expected one architecture under their "
                f"heads"
            )
    return states


def align_bodies(
    models: Sequence[nn.Module], options: Selection, anchor: int = 0, place: Workplace = HERE
) -> list[Alignment]:
    """Alignments of models that are matched by their bodies alone, whatever their heads are.

    Args:
        models: of one architecture under the heads (other numbers of classes, other kinds of task); not modified.
        options: what to match and how.
        anchor: index of the model that the others are matched to.
        place: where the matching is computed.

    Returns:
        For each model an alignment of its own blueprint: it preserves the whole model's function, head included.

    Raises:
        InputError: bodies that differ, or spaces that admit other groups under one head than under another.
    """
    return _by_bodies(
        models, options, lambda states, shared: align_states(states, shared, options, anchor, place=place)
    )


def gauge_bodies(models: Sequence[nn.Module], options: Selection) -> list[Alignment]:
    """Alignments that bring every model into the gauge of `options`, and no model nearer to another.

    Args:
        models: see `align_bodies`.
        options: whose gauge it is.

    Raises:
        InputError: see `align_bodies`.
    """
    return _by_bodies(models, options, lambda states, shared: gauged(states, shared, options)[1])


def under_head_of(alignment: Alignment, model: nn.Module) -> Alignment:
    """The alignment of another model with the same body: its own head moves with the basis of the body.

    Args:
        alignment: of a model whose head may be another one.
        model: with a body of the same shapes.

    Raises:
        InputError: the body admits other groups under this head.
    """
    source = alignment.blueprint
    own = blueprint(model).in_gauge(source.gauge)
    for name in alignment.elements:
        # A space of the other head alone has no part in this model.
        shared = not own.parameters.keys().isdisjoint(source.touching([name]))
        if shared and own.spaces.get(name) != source.spaces[name]:
            raise InputError(
                f"the space {name!r} of a {type(model).__name__} has another symmetry under its head than under that "
                f"of the end models; expected heads that leave the same ones"
            )
    return Alignment(own, {name: element for name, element in alignment.elements.items() if name in own.spaces})


def body_blueprint(models: Sequence[nn.Module]) -> Blueprint:
    """The blueprint of the body of several models: what its parameters' axes are, their heads left out.

    Raises:
        InputError: bodies that differ in a name or a shape.
    """
    return _restricted(blueprint(models[0]), body_states(models)[0])


def split_heads(body: State, twins: Sequence[Model]) -> list[Model]:
    """One model for each task: the merged body under the task's own head.

    Args:
        body: merged parameters of the body, from `body_states` of the twins.
        twins: matched twins with their heads; not modified.

    Returns:
        New models, in order, each of its twin's class.
    """
    return [with_state(twin, {**twin.state_dict(), **body}) for twin in twins]


def _by_bodies(
    models: Sequence[nn.Module],
    options: Selection,
    find: Callable[[Sequence[State], Blueprint], Sequence[Alignment]],
) -> list[Alignment]:
    """Alignments of whole models from what is found for their bodies' states and the blueprint that those share."""
    described = [blueprint(model) for model in models]
    states: Sequence[State] = body_states(models)
    if not options.spaces:
        return [Alignment.identity(one) for one in described]
    # Folding looks at what reads the last norm, which is the head; so it is done on whole models.
    described = [one.in_gauge(options.gauge) for one in described]
    if options.gauge:
        folded = [Alignment.identity(one).apply(m.state_dict()) for one, m in zip(described, models, strict=True)]
        states = [{name: whole[name] for name in state} for whole, state in zip(folded, states, strict=True)]
    shared = _restricted(described[0], states[0])
    for index, one in enumerate(described[1:], start=1):
        other = _restricted(one, states[0])
        if (other.spaces, other.parameters) != (shared.spaces, shared.parameters):
            raise InputError(
                f"the body of model {index} has other symmetries under its head than that of model 0; expected heads "
                f"that leave the same ones"
            )
    found = find(states, shared)
    return [Alignment(one, alignment.elements) for one, alignment in zip(described, found, strict=True)]


def _restricted(described: Blueprint, names: State) -> Blueprint:
    """A blueprint of some of the parameters, with the spaces that act on them; it folds nothing."""
    part = replace(described, parameters={name: described.parameters[name] for name in described.stacked(names)})
    touching = {name for name in described.spaces if part.touching([name])}
    indexed = {outer for name in touching for outer in described.spaces[name].index}
    spaces = {name: space for name, space in described.spaces.items() if name in touching | indexed}
    return replace(part, spaces=spaces, norms=(), layer_scales=(), centred=(), after_folding=None)


def _own_parts(models: Sequence[nn.Module]) -> tuple[str, ...]:
    """The beginnings of names of parameters in those parts of the base model that not all of several models have."""
    bodies = [base_module(model) for model in models]
    kinds = {type(body) for body in bodies}
    if len(kinds) > 1 or kinds == {type(None)}:
        return ()
    parts: list[set[str]] = [
        {prefix_of(model) + name.partition(".")[0] + "." for name in body.state_dict()}
        for model, body in zip(models, bodies, strict=True)
        if body is not None
    ]
    common = {part for part in parts[0] if all(part in other for other in parts)}
    return tuple(set().union(*parts) - common)


def _shape(state: State, name: str) -> tuple[int, ...] | None:
    return tuple(state[name].shape) if name in state else None
