"""Advice on models that are to be merged: which case they are, what helps, and what to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from fusionlab.advice.adapter_pairs import compare_adapters
from fusionlab.advice.agreement import Agreement
from fusionlab.advice.costs import Cost, cost_of
from fusionlab.advice.in_common import share_base
from fusionlab.advice.pairs import Kind, Pair, compare
from fusionlab.advice.running import CORRELATION, by_correlation, commands, has_other_heads, matching_of
from fusionlab.advice.situations import (
    CASES,
    Case,
    CaseName,
    case_of,
    exceptions,
    judged,
    unmatchable,
    worst,
)
from fusionlab.advice.tensors import Weights, unknown_type
from fusionlab.errors import InputError
from fusionlab.misfits import of_labels
from fusionlab.symmetry.html import html_table

# Before advice that stands beside scores.
EXPECTED = "Expected by the weights alone, which the scores here may not bear out:"
HEADS = ("parameters", "tensors", "own nearest", "by chance", "angle", "distance", "equal")


@dataclass(frozen=True, repr=False)
class Advice:
    """Advice on some models: the case they are, judged by their weights alone.

    Attributes:
        case: its name, one of `fusionlab.advice.CASES`.
        models: their names.
        pairs: each model with the first, in numbers.
        match: preset of matching that is advised: where inputs are at hand; None where nothing can be merged yet.
        match_alone: the same without inputs.
        commands: to run, the first with data, the second without.
        cost: of the first, roughly; None where there is none.
        exceptions: sentences on parameters that are otherwise than most.
        agreement: of the models' plain mean with what they say together, on inputs; None where nobody looked.
        unknown: model type of checkpoints that transformers does not have, so that they cannot be matched; else None.
    """

    case: CaseName
    models: Sequence[str]
    pairs: Sequence[Pair]
    match: str | None
    match_alone: str | None
    commands: Sequence[str]
    cost: Cost | None
    exceptions: Sequence[str] = field(default_factory=list)
    agreement: Agreement | None = None
    unknown: str | None = None

    @property
    def has_no_line(self) -> bool:
        """True where the models as they are have no mean: other architectures, vocabularies or heads."""
        return self.case in ("architectures", "vocabularies") or has_other_heads(self.case, self.pairs)

    @property
    def described(self) -> Case:
        """The case in words."""
        found = _described(self.case, self.agreement, self.unknown)
        return by_correlation(found) if self.match == CORRELATION else found

    @property
    def sentence(self) -> str:
        """The case in a sentence, with the numbers that it was judged by."""
        seen = "" if self.agreement is None else f" {self.agreement}"
        return f"These are {self.described.title}{self._reason()}.{seen}"

    @property
    def lines(self) -> list[str]:
        """All of it in sentences, without the tables."""
        found = [self.sentence, *self.exceptions, *self.described.said]
        return found if self.cost is None else [*found, f"It takes {self.cost}."]

    @property
    def note(self) -> str:
        """The case and what helps, as one paragraph of a report, which may have scores that are otherwise."""
        # What adapters change stands in the way of none of the scores.
        changes = self.exceptions if self.case == "adapters" else ()
        return " ".join([self.sentence, *changes, EXPECTED, *self.described.said])

    def chosen(self, has_inputs: bool) -> str:
        """The preset of matching to take; nothing is matched where nothing is advised.

        Args:
            has_inputs: whether there are inputs to look at.
        """
        return (self.match if has_inputs else self.match_alone) or "none"

    def _reason(self) -> str:
        """The numbers of the pair that decided."""
        judged = [pair for pair in self.pairs if pair.relation is not None]
        if self.case not in _BY_WEIGHTS or not judged:
            return ""
        pair = min(judged, key=_share)
        chance = [kind.chance for kind in pair.kinds if kind.chance is not None]
        by_chance = f", by chance {sum(chance) / len(chance):.1%}" if chance else ""
        angle = pair.matrices.angle
        apart = "" if angle is None else f"; angle between the weights {angle:.0f} degrees"
        return f" (units that are nearest to themselves: {_share(pair):.0%}{by_chance}{apart})"

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "case": self.case,
            "sentence": self.sentence,
            "models": list(self.models),
            "match": self.match,
            "match_without_inputs": self.match_alone,
            "helps": self.described.helps,
            "does_not_help": self.described.useless,
            "agreement": None if self.agreement is None else self.agreement.share,
            "exceptions": list(self.exceptions),
            "commands": list(self.commands),
            "seconds": None if self.cost is None else self.cost.seconds,
            "memory_bytes": None if self.cost is None else self.cost.memory,
            "pairs": [
                {
                    "models": [pair.first, pair.second],
                    "kinds": [_plain(kind) for kind in pair.kinds],
                    "matrices": _plain(pair.matrices),
                    "vectors": None if pair.vectors is None else _plain(pair.vectors),
                    "same_lengths": pair.same_lengths,
                    "lengths_of_changes": None if pair.lengths is None else list(pair.lengths),
                    "only_in_one": list(pair.only),
                    "other_shapes": list(pair.shapes),
                }
                for pair in self.pairs
            ],
        }

    def __repr__(self) -> str:
        run = f" Run: {self.commands[0]}" if self.commands else ""
        return f"<Advice: {self.sentence}{run}>"

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{escape(line)}</p>" for line in self.lines)
        code = "".join(f"<pre>{escape(command)}</pre>" for command in self.commands)
        tables = "".join(html_table(f"{pair.first} and {pair.second}", HEADS, table_lines(pair)) for pair in self.pairs)
        return f"{words}{code}{tables}"


# Cases that are told by how near units are.
_BY_WEIGHTS = {"other_seeds", "one_model_in_two_bases", "partly_one_basis", "one_basis_far_apart", "one_base"}


def advice_on(
    models: Sequence[Weights], data: str | None = None, advance: Callable[[int], object] = lambda _: None
) -> Advice:
    """Look at the weights of some models, each with the first, and say what they are to one another.

    Args:
        models: two or more, see `fusionlab.advice.tensors`; adapters of one base, or whole models.
        data: as it is written in the commands; a word in capitals if None.
        advance: told the bytes of the first model that were read.

    Raises:
        InputError: fewer than two models, or adapters among whole models.
    """
    if len(models) < 2:
        raise InputError(f"{len(models)} end model was given; expected at least two")
    first, *others = models
    adapters = [model.name for model in models if model.base is not None]
    if adapters and len(adapters) < len(models):
        raise InputError(
            f"{adapters[0]} is an adapter, and others are whole models; expected adapters alone or models alone "
            f"(fusionlab merge and fuse read adapters as whole models)"
        )
    pairs = [_compared(first, other, advance) for other in others]
    cases = [case_of(first, other, pair) for other, pair in zip(others, pairs, strict=True)]
    case = worst(cases)
    told = [
        sentence
        for one, other, pair in zip(cases, others, pairs, strict=True)
        for sentence in exceptions(one, first, other, pair)
    ]
    told += [f"{sentence}." for sentence in _turned_labels(models)]
    return _advice(case, pairs, list(dict.fromkeys(told)), models, data)


def looked_at(
    advice: Advice, models: Sequence[Weights], agreement: Agreement | None, data: str | None = None
) -> Advice:
    """The same advice after a look at what the models say of inputs, where that decides.

    Args:
        advice: by the weights alone.
        models: those that it is on.
        agreement: of their plain mean with what they say together; None where nothing could be looked at.
        data: as it is written in the commands; a word in capitals if None.
    """
    if agreement is None or not CASES[advice.case].is_open:
        return advice
    return _advice(advice.case, advice.pairs, advice.exceptions, models, data, agreement)


def _advice(
    case: CaseName,
    pairs: Sequence[Pair],
    told: Sequence[str],
    models: Sequence[Weights],
    data: str | None,
    agreement: Agreement | None = None,
) -> Advice:
    """The consequences of a case."""
    unknown = next((kind for model in models if (kind := unknown_type(model)) is not None), None)
    found = _described(case, agreement, unknown)
    match, sized = matching_of(found, models), [model.of_base or model for model in models]
    cost = None if match is None or not all(model.numbers for model in sized) else cost_of(sized, match)
    with_heads = has_other_heads(case, pairs) or bool(_turned_labels(models))
    run = commands(case, found, models, match, data or "DATA", with_heads)
    names = [model.name for model in models]
    return Advice(case, names, pairs, match, found.match_alone, run, cost, told, agreement, unknown)


def _turned_labels(models: Sequence[Weights]) -> list[str]:
    """Sentences on models that have the first one's labels in another order."""
    first, *others = models
    found = (of_labels([one.name, first.name], [one.config, first.config]) for one in others)
    return [sentence for sentence in found if sentence is not None]


def _described(case: CaseName, agreement: Agreement | None, unknown: str | None) -> Case:
    """A case after a look at inputs, and at the class."""
    found = judged(CASES[case], None if agreement is None else agreement.share)
    return found if unknown is None else unmatchable(found, unknown)


def _compared(first: Weights, other: Weights, advance: Callable[[int], object]) -> Pair:
    """A pair in numbers: of adapters of one base model what they change, else all weights."""
    if first.layers is not None and other.layers is not None and share_base(first, other):
        return compare_adapters(first, other)
    return compare(first, other, advance)


def table_lines(pair: Pair) -> list[tuple[str, ...]]:
    """The numbers of a pair as cells of a table with `HEADS`, kinds of parameters in their order.

    Args:
        pair: what was found of two models.
    """
    kinds = [*pair.kinds, pair.matrices, *([pair.vectors] if pair.vectors is not None else [])]
    return [
        (
            kind.name,
            str(kind.tensors),
            _cell(kind.nearest, "{:.1%}"),
            _cell(kind.chance, "{:.1%}"),
            _cell(kind.angle, "{:.1f}°"),
            _cell(kind.distance, "{:.3g}"),
            _cell(kind.equal, "{:.0%}"),
        )
        for kind in kinds
        if kind.tensors
    ]


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _share(pair: Pair) -> float:
    """Units that are nearest to themselves, mean over the kinds that tell."""
    shares = [kind.nearest for kind in pair.kinds if kind.nearest is not None]
    return sum(shares) / len(shares) if shares else 0.0


def _plain(kind: Kind) -> dict[str, Any]:
    return {
        "name": kind.name,
        "tensors": kind.tensors,
        "relation": kind.relation,
        "own_nearest": kind.nearest,
        "by_chance": kind.chance,
        "cosine": kind.cosine,
        "relative_distance": kind.distance,
        "equal": kind.equal,
    }
