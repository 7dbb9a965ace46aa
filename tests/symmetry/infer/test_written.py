"""What is inferred holds all that was written down by hand, or the difference is named here."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.architectures import DESCRIBED
from fusionlab.symmetry.axes import spaces_of
from tests.families.harness import Case
from tests.families.test_families import CASES, MOST
from tests.parts import one_in
from tests.symmetry.infer.cases import SAMPLES
from tests.symmetry.infer.described import inferred_again
from tests.symmetry.written import WRITTEN

ROOT = Path(__file__).parents[3]

UNREAD = "some of its parameters are never read in a forward pass, so nothing is said of them"
LARGER = "inference finds a larger group on the same parameters"
# How many written spaces, as the model stands and folded, are not found as they were written, and why.
DIFFERENT = {
    "clip-classifier": (2, UNREAD),
    "siglip-classifier": (10, UNREAD),
    "deberta-v2-token-unread-shared-positions": (2, UNREAD),
    "dinov2-classifier": (2, UNREAD),
    "dinov2-classifier-no-qkv-bias": (2, UNREAD),
    "dinov2-registers-classifier": (2, UNREAD),
    "vit-pixels-without-a-mask": (2, UNREAD),
    "opt-lm-post-norm-narrow-words": (2, LARGER),
    "opt-lm-narrow-words": (2, LARGER),
    "opt-lm-plain-norms-no-bias": (2, LARGER),
    "opt-sequence-no-bias-plain-norms": (1, LARGER),
    "timm-vit-scale-norms": (4, LARGER),
    "bart-lm-relu-untied": (2, "two streams are found that were written as one"),
}

# Every fourth class, what is not found as it was written, and all by make test-architectures.
FOURTH = one_in(4, MOST)
TRIED = [case for case in CASES if case in FOURTH or case.name in DIFFERENT]


def places(blueprint: Blueprint) -> set[tuple[str, tuple[int, ...], frozenset[tuple[str, int]]]]:
    """Every space by its group, its copies and the dimensions of parameters that it acts on."""
    found: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for name, axes in blueprint.parameters.items():
        for dim, axis in enumerate(axes):
            for space in spaces_of(axis):
                found[space].add((name, dim))
    spaces = blueprint.spaces
    return {(str(spaces[name].group), spaces[name].copies, frozenset(where)) for name, where in found.items()}


def test_the_docs_count_what_is_tested() -> None:
    """The README's types and models, and the cases of the pages."""
    readme, *pages = (
        " ".join((ROOT / page).read_text(encoding="utf-8").split())
        for page in ("README.md", "docs/architectures.md", "docs/design.md", "docs/inference.md")
    )
    types = {*WRITTEN.names, *DESCRIBED.names}
    assert f"on the real classes of {len(types)} types" in readme
    assert f"and of {len(SAMPLES)} models beside them" in readme
    assert all(re.search(rf"\b{len(CASES)} (models|cases)\b|their {len(CASES)} cases", page) for page in pages)


@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_all_that_was_written_is_found(case: Case) -> None:
    """As the model stands and after folding: the same groups on the same dimensions of the same parameters."""
    written, found = inferred_again(case)
    pairs = ((written, found), (written.after_folding or written, found.after_folding or found))
    missing = [place for by_hand, by_trace in pairs for place in places(by_hand) - places(by_trace)]
    count, reason = DIFFERENT.get(case.name, (0, ""))
    assert len(missing) == count, missing
    if reason == LARGER:
        assert any(by_trace.dimension > by_hand.dimension for by_hand, by_trace in pairs)
