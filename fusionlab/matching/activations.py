"""Matching from activations: what linear maps read and write, sampled on the same inputs, in place of the weights.

A sampled activation is a tensor of shape ``(features, samples)`` whose features transform as vectors of the model do
and whose samples are fixed. A blueprint can say so, and then the engine for weights does all the rest. No tensor runs
through two spaces, so that every space is solved in closed form, whatever couples them in the weights.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.matching.options import ALL, ANNEALED, MatchOptions
from fusionlab.matching.weights import match_weights
from fusionlab.statistics import Activations
from fusionlab.symmetry import Alignment, Blueprint, Space
from fusionlab.symmetry.axes import Axis, Fixed, spaces_of
from fusionlab.symmetry.roles import Role


def match_activations(
    source: Activations, anchor: Activations, blueprint: Blueprint, options: MatchOptions
) -> Alignment:
    """The alignment that brings a source's activations closest to an anchor's, every tensor of them counting alike.

    Each tensor is divided by the geometric mean of its two norms; each space is then solved to its global optimum, as
    in `match_weights`. Scales are not solved: what a tensor was divided by would decide them. A space that no linear
    map reads or writes keeps its basis.

    Args:
        source: activations of the model that is moved.
        anchor: activations of the model that keeps its basis, at the same rows of the same data.
        blueprint: of both models, as they were when they were measured (folded or not).
        options: which spaces to match; ``rescale`` and ``sweeps`` have no effect on what is uncoupled.

    Returns:
        An alignment for the source.

    Raises:
        InputError: the two were not measured at the same rows, or not on the same linear maps.
    """
    pseudo, first, second = activation_tensors(source, anchor, blueprint, options.select(blueprint))
    if not pseudo.spaces:
        return Alignment.identity(blueprint)
    for name in list(first):
        scale = (first[name].norm() * second[name].norm()).sqrt()
        if scale > 0:
            first[name], second[name] = first[name] / scale, second[name] / scale
    plain = replace(options, spaces=(ALL,), layers=ALL, rescale="off", start=ANNEALED)
    found = match_weights(first, second, pseudo, plain)
    return Alignment(blueprint, found.elements)


def activation_tensors(
    source: Activations, anchor: Activations, blueprint: Blueprint, spaces: Sequence[Space]
) -> tuple[Blueprint, dict[str, Tensor], dict[str, Tensor]]:
    """Sampled activations of two models as parameters, and the blueprint that says so.

    Args:
        source: activations of the model that is moved.
        anchor: activations of the model that keeps its basis.
        blueprint: of both models.
        spaces: those that may act.

    Returns:
        The blueprint of those spaces that act on some activation, and the activations by name, each of shape
        ``(features, samples)``, float64.

    Raises:
        InputError: the two were not measured at the same rows, or not on the same linear maps.
    """
    check_comparable(source, anchor)
    axes = activation_axes(anchor, blueprint)
    touched = {space for axis in axes.values() for space in spaces_of(axis)}
    acting = {space.name: space for space in spaces if space.name in touched}
    pseudo = Blueprint(blueprint.architecture, acting, {name: (axis, Fixed()) for name, axis in axes.items()})
    first, second = (
        {name: activation_tensor(a, name, axis.size) for name, axis in axes.items()} for a in (source, anchor)
    )
    return pseudo, first, second


def check_comparable(first: Activations, second: Activations) -> None:
    """Refuse activations of two models that do not correspond sample by sample.

    Raises:
        InputError: other rows, other data or other linear maps.
    """
    if first.drawn != second.drawn:
        raise InputError("the activations of two models were sampled from different inputs; expected the same for all")
    if first.maps.keys() != second.maps.keys():
        odd = sorted(first.maps.keys() ^ second.maps.keys())[0]
        raise InputError(f"activations of {odd!r} are known for one model only; expected the same linear maps for all")


def activation_axes(activations: Activations, blueprint: Blueprint) -> dict[str, Axis]:
    """The axes along which the features of sampled activations transform, by name.

    What a weight writes runs along the axis that it writes; what it reads runs along the dual of the one that reads.
    A tensor that several weights read is there once. What is added to a residual stream is left out where something
    reads the stream: a reader sees the whole of it, each writer adds a part. A gradient by what a weight writes runs
    along the dual of that axis, and is that of the whole stream where the weight adds to one.

    Returns:
        By ``in:``, ``out:`` or ``gradient:`` and the weight's name, axes that some space acts on.
    """
    read: dict[str, Axis] = {}
    written: dict[str, Axis] = {}
    seen = set()
    for weight, linear in activations.maps.items():
        if weight not in blueprint.parameters:
            continue  # of one expert, whose units have no place of their own
        axes = blueprint.parameters[weight]
        written[f"out:{weight}"] = axes[1 if linear.dim == 0 else 0]
        if linear.inputs not in seen:
            seen.add(linear.inputs)
            read[f"in:{weight}"] = axes[linear.dim].dual()
    differentiated = {
        name.replace("out:", "gradient:"): axis.dual()
        for name, axis in written.items()
        if name.removeprefix("out:") in activations.gradients
    }
    streams = {s for axis in read.values() for s in spaces_of(axis) if blueprint.spaces[s].role == Role.RESIDUAL}
    written = {name: axis for name, axis in written.items() if streams.isdisjoint(spaces_of(axis))}
    every = read | written | differentiated
    return {name: axis for name, axis in every.items() if any(spaces_of(axis))}


def activation_tensor(activations: Activations, name: str, size: int | None) -> Tensor:
    """A sampled activation by its name in `activation_axes`, float64, shape ``(features, samples)``.

    Args:
        activations: of a model.
        name: of the tensor.
        size: of its axis. A convolution reads patches, channel after channel, whose pixels are samples of the channel.
    """
    kind, _, weight = name.partition(":")
    parts = {"in": activations.inputs, "out": activations.outputs, "gradient": activations.gradients}
    found = parts[kind][weight].double()
    return found if size is None else found.reshape(size, -1)
