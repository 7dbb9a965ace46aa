"""The cases that models to be merged can be, and how one is told from another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from fusionlab.advice.adapter_pairs import said_of
from fusionlab.advice.in_common import is_head, other_inputs, share_base
from fusionlab.advice.nearness import Relation
from fusionlab.advice.pairs import Kind, Pair, pattern, some
from fusionlab.advice.tensors import Weights

CaseName = Literal[
    "architectures", "vocabularies", "sizes", "other_seeds", "one_model_in_two_bases", "partly_one_basis",
    "one_basis_far_apart", "one_base", "adapters", "same", "unclear",
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A case that models can be, with what is known of it.

    Attributes:
        title: the case in words, as the end of "these are ...".
        helps: sentences on what will help.
        useless: a sentence on what will not.
        match: the preset of matching where inputs are at hand; None where nothing can be matched yet.
        match_alone: the same without inputs.
        methods: merge methods to compare.
        are_apart: whether the models share no basis, so that their mean as they are is expected to be near chance; None
            where nothing is expected of either.
        is_open: whether a look at what the models say of inputs decides if they are matched by learning.
        is_drawn: whether learning on synthetic inputs, where these teach, is better than what is matched without any.
        unsure: a sentence that such a look makes needless.
    """

    title: str
    helps: str
    useless: str
    match: str | None
    match_alone: str | None
    methods: Sequence[str] = ("simple",)
    are_apart: bool | None = None
    is_open: bool = False
    is_drawn: bool = False
    unsure: str = ""

    @property
    def said(self) -> list[str]:
        """The sentences on what helps and what does not."""
        return [sentence for sentence in (self.helps, self.useless, self.unsure) if sentence]


# Of inputs that the plain mean classifies as the models do together: from here on nothing is gained by learned matching
# (docs/advise.md has the pairs that say so).
ENOUGH = 0.7
# The cosine from which two vectors of one length are closer to one another than they are long: 60 degrees.
CLOSE = 0.5
# Of a kind of parameters whose units are in another order: 16 units or more, not a quarter of them their own nearest.
_CHANCE, _RENUMBERED = 1 / 16, 1 / 4
# From what stands in the way most to what stands in no way: several models are the first of these that a pair is.
CASES: dict[CaseName, Case] = {
    "architectures": Case(
        "models of different architectures",
        "Nothing here merges them: distil one into the other, or run them as an ensemble.",
        "Matching needs one architecture.",
        None,
        None,
    ),
    "vocabularies": Case(
        "models of different vocabularies",
        "Give them one vocabulary first (fusionlab vocab), and ask again.",
        "Rows of the embeddings that stand for different tokens cannot be averaged.",
        None,
        None,
    ),
    "sizes": Case(
        "one architecture in different sizes",
        "The smaller is grown to the larger's size exactly, then matched by learning; fuse does both, where inputs and "
        "labels are the same. Not all sizes can be grown into each other (a norm after the sum wants whole multiples), "
        "which fuse says before it works.",
        "Their weights cannot be averaged as they are.",
        "learned",
        "weights",
        is_drawn=True,
    ),
    "other_seeds": Case(
        "models trained apart (other seeds), or brought into different bases: they share none",
        "Match them by learning on inputs without labels, then take the plain mean; where one model is all that is "
        "wanted, a polish after weights (--match weights --polish 600) was as good or better. Without inputs "
        "--match learned draws synthetic ones, and language models write theirs; weights get part of the way.",
        "Their mean as they are will be near chance, with any merge method.",
        "learned",
        "weights",
        are_apart=True,
        is_drawn=True,
    ),
    "one_model_in_two_bases": Case(
        "one model in two bases: every parameter is as long in one as in the other, and in another order",
        "Matching by weights finds the one in the other, without any data.",
        "Their mean as they are will be near chance, with any merge method.",
        "weights",
        "weights",
        are_apart=True,
    ),
    "partly_one_basis": Case(
        "models that share a part of a basis: trained far from one start, matched by learning, or renumbered in places",
        "Measure both: the merge as they are, and after learned matching.",
        "",
        "learned",
        "weights",
        is_open=True,
        unsure="No rule says by the weights which is better here.",
    ),
    "one_basis_far_apart": Case(
        "models in one basis, but far apart in it: matched already, or trained long from one start",
        "Merge them as they are.",
        "Matching by weights again changes nothing: each unit is nearest to itself.",
        "none",
        "none",
        ("simple", "slerp"),
        are_apart=False,
        is_open=True,
        unsure="Whether learned matching helps, inputs tell (data).",
    ),
    "one_base": Case(
        "fine-tunes of one base, or merges or snapshots of one run: they share a basis and most of their weights",
        "The merge method decides: with data regmean or fisher; of different tasks, or without data, tsv_m where the "
        "base model is at hand, else simple.",
        "Matching by weights changes nothing: each unit is nearest to itself.",
        "none",
        "none",
        ("regmean", "simple"),
        are_apart=False,
        is_open=True,
        unsure="Where tasks conflict, learned matching may gain some points for its time: measure it.",
    ),
    "adapters": Case(
        "LoRA adapters of one base",
        "The merge method decides: with data regmean, else simple; ties, tsv_m and others want a chosen lambda_. "
        "The base model is known from the adapters.",
        "Matching changes nothing: adapters of one base share its basis.",
        "none",
        "none",
        ("regmean", "simple"),
        are_apart=False,
    ),
    "same": Case(
        "the same model twice", "There is nothing to merge.", "Any merge of them is the same model.", None, None
    ),
    "unclear": Case(
        "models too small to tell: no parameter has units enough",
        "Measure both: the merge as they are, and after learned matching.",
        "",
        "learned",
        "weights",
        is_open=True,
        unsure="No number here says which is better.",
    ),
}  # fmt: skip


def judged(case: Case, agreement: float | None) -> Case:
    """A case after a look at what the models say of inputs.

    Args:
        case: by the weights alone.
        agreement: share of inputs that their plain mean classifies as they do together; None where nobody looked.
    """
    if agreement is None or not case.is_open:
        return case
    if agreement < ENOUGH:
        helps = "Their tasks conflict: match them by learning on inputs without labels, then take the plain mean."
        return replace(case, helps=helps, match="learned", methods=("simple",), are_apart=None, unsure="")
    costs = "Learned matching of models that agree so far costs points more often than it gains some."
    useless = f"{case.useless} {costs}".strip()
    helps = case.helps if case.match == "none" else "Merge them as they are."
    return replace(case, helps=helps, useless=useless, match="none", unsure="")


def unmatchable(case: Case, kind: str) -> Case:
    """A case of models whose class is not known, so that they cannot be matched by any data.

    Args:
        case: that they are otherwise.
        kind: their model type.
    """
    if case.match is None or case.match == "none":
        return replace(case, unsure="")
    helps = (
        f"They cannot be matched as files: no symmetry is known of models of type {kind!r}, which transformers does "
        f"not have; in Python fusionlab.blueprint(model, example_inputs) infers it from the module."
    )
    return replace(case, helps=helps, match=None, match_alone=None, unsure="")


def case_of(first: Weights, second: Weights, pair: Pair) -> CaseName:
    """The case that two models are.

    Args:
        first: one.
        second: the other.
        pair: what was found of them.
    """
    if first.base is not None and second.base is not None:
        is_same = bool(pair.kinds) and pair.whole.equal == 1 and not pair.only
        return "architectures" if not share_base(first, second) else "same" if is_same else "adapters"
    return _by_config(first, second, pair) or _by_weights(pair, first.is_twin or second.is_twin)


def _by_config(first: Weights, second: Weights, pair: Pair) -> CaseName | None:
    """The case of models whose weights cannot all be held against each other; None where they can."""
    if _differ(first.config, second.config, "model_type") or other_inputs(first, second, pair.shapes):
        return "architectures"
    if _repeated(pair, pair.only) or any(pattern(n) != n and not is_head(n, first, second) for n in pair.shapes):
        kinds = [{pattern(name) for name in model.tensors} for model in (first, second)]
        return "sizes" if len(kinds[0] & kinds[1]) * 2 > max(map(len, kinds)) else "architectures"
    if pair.shapes and _differ(first.config, second.config, "vocab_size"):
        return "vocabularies"
    return None if pair.whole.tensors else "architectures"


def _by_weights(pair: Pair, is_matched: bool) -> CaseName:
    """The case of models of one architecture and size; of a matched twin less has to be seen."""
    if pair.whole.equal == 1 and not pair.shapes and not pair.only:
        return "same"
    matched: CaseName = "one_basis_far_apart" if is_matched else "partly_one_basis"
    own: CaseName = "one_base" if (pair.matrices.cosine or 0.0) >= CLOSE else "one_basis_far_apart"
    if any(_is_renumbered(kind) for kind in pair.kinds):
        own = "partly_one_basis"
    by_relation: dict[Relation | None, CaseName] = {
        None: "unclear",
        "own": own,
        "related": matched,
        "unrelated": "one_model_in_two_bases" if pair.same_lengths else "other_seeds",
    }
    return by_relation[pair.relation]


def _is_renumbered(kind: Kind) -> bool:
    """True for parameters of several layers whose units are in another order, whatever the rest of the model shares.

    Heads are no such parameters: fine-tunes may each begin a fresh one. Nor are a few units, of which few can be own.
    """
    tells = kind.nearest is not None and kind.chance is not None and kind.chance <= _CHANCE
    return tells and kind.tensors > 1 and kind.relation == "unrelated" and (kind.nearest or 0) < _RENUMBERED


def worst(names: Sequence[CaseName]) -> CaseName:
    """The case of several models: of the cases of their pairs the one that stands in the way most.

    Args:
        names: one for each pair, at least one.
    """
    return next(name for name in CASES if name in names)


def exceptions(case: CaseName, first: Weights, second: Weights, pair: Pair) -> list[str]:
    """Sentences on parameters that are otherwise than most, where most tell anything.

    Args:
        case: that the two models are.
        first: one of them.
        second: the other.
        pair: what was found of them.
    """
    said: list[str] = []
    if case == "architectures" and (entries := other_inputs(first, second, pair.shapes)):
        return [f"They take other inputs ({', '.join(entries)}), so that the shapes of {some(pair.shapes)} differ."]
    if case == "adapters":
        return said_of(pair)
    if case in ("architectures", "vocabularies", "sizes"):
        return said
    if pair.relation in ("own", "unrelated"):
        other = [kind.name for kind in pair.kinds if kind.relation is not None and kind.relation != pair.relation]
        if other:
            words = "share no basis, or less of it" if pair.relation == "own" else "are nearer to one another"
            said.append(f"{len(other)} of {len(pair.kinds)} kinds of parameters {words}: {some(other)}.")
    if pair.shapes:
        said.append(
            f"The shapes of {some(pair.shapes)} differ: where these are heads, fuse --heads own merges what lies "
            f"below them."
        )
    if pair.only:
        said.append(f"Only one of {pair.first} and {pair.second} has {some(pair.only)}.")
    return said


def _repeated(pair: Pair, names: Sequence[str]) -> bool:
    """True for names that stand in a layer of which both models have others: so it is with other depths."""
    known = {kind.name for kind in pair.kinds if "*" in kind.name}
    return any(pattern(name) in known for name in names)


def _differ(first: Mapping[str, Any], second: Mapping[str, Any], entry: str) -> bool:
    one, other = first.get(entry), second.get(entry)
    return one is not None and other is not None and one != other
