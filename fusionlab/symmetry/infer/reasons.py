"""Reasons for what a blueprint leaves out, as its notes say them."""

from __future__ import annotations

from collections.abc import Iterator

from fusionlab.symmetry.blueprint import Blueprint
from fusionlab.symmetry.groups import Permutation, Signs
from fusionlab.symmetry.infer.attempts import Attempts
from fusionlab.symmetry.infer.interpreter import Reading
from fusionlab.symmetry.roles import Role


def reasons(blueprint: Blueprint, reading: Reading, attempts: Attempts, is_tied: bool) -> Iterator[str]:
    """Sentences on what was left out of a blueprint, and on what could not be seen.

    Args:
        blueprint: without notes.
        reading: of the model's graph.
        attempts: on it.
        is_tied: some parameter has two names.
    """
    notes = reading.notes
    yield from reading.traced.branches
    for name, count in sorted(notes.unknown.items()):
        yield f"no rule for the operation {name} ({count} times): what goes into it has a fixed basis"
    for clash in dict.fromkeys(notes.clashes):
        yield f"a fixed basis where dimensions do not fit: {clash}"
    described = blueprint.after_folding or blueprint
    streams = [space.group for space in described.spaces.values() if space.role == Role.RESIDUAL]
    if not streams:
        yield from _of_streams(reading, attempts)
    if is_tied and streams and all(isinstance(group, Permutation | Signs) for group in streams):
        yield "parameters are tied; untied output embeddings (--untie) may admit rotations of the residual stream"
    silent = [name for name in reading.parameters if attempts.is_silent(name)]
    if silent:
        yield f"the outputs do not depend on {', '.join(silent)}"


def _of_streams(reading: Reading, attempts: Attempts) -> Iterator[str]:
    """Reasons why the streams have a basis of their own."""
    notes = reading.notes
    # Batches and places are added along, too, but run through no parameters.
    through = {variable for variable in notes.streams if len(attempts.members.get(variable, ())) > 1}
    if returned := [name for name, along in notes.returned.items() if along & through]:
        yield f"the residual stream is an output ({', '.join(returned)}), so its basis is not free"
    elif notes.met & through:
        yield "an input or a constant is added to the residual stream, so its basis is not free"
