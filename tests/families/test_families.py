"""Every architecture and head type, one table: the cases of all ``cases_*.py`` files beside this one."""

import importlib
import pkgutil

import pytest

import tests.families
from fusionlab.symmetry.architectures import DESCRIBED
from tests.families import harness
from tests.families.harness import Case
from tests.families.needed_axes import check_every_axis_is_needed
from tests.parts import EVERY, one_in
from tests.symmetry.written import WRITTEN, written

CASES: list[Case] = [
    case
    for module in pkgutil.iter_modules(tests.families.__path__)
    if module.name.startswith("cases_")
    for case in importlib.import_module(f"tests.families.{module.name}").CASES
]
# Of what follows from the exactness of all groups together, a third is tried in every run (gauges: a
# sixth), and all by make test-architectures. Every architecture has a case among them.
BESIDE = {"siglip-text", "clip-text", "dinov2-registers", "timm-deit-distilled"}
SOME = [case for place, case in enumerate(CASES) if EVERY or place % 3 == 0 or case.name in BESIDE]
# Of what follows from one element of all groups at once, that of any alone, a ninth.
FEW = one_in(9, CASES)


def _of_more_classes() -> list[Case]:
    """Those, and the first case of every other model class that none of them is of; or all cases."""
    kinds = {case.name: type(case.build()) for case in CASES}
    tried = {kinds[case.name] for case in SOME}
    first = {kind: name for name, kind in reversed(kinds.items()) if kind not in tried}
    found = {case.name for case in SOME} | set(one_in(24, sorted(first.values())))
    return [case for case in CASES if EVERY or case.name in found]


# Inference itself takes half a second for each.
MOST = _of_more_classes()


def of(cases: list[Case]) -> pytest.MarkDecorator:
    """Tests of these cases, all those of one case after each other, as they share its model."""
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name, scope="module")


each, some, few = of(MOST), of(SOME), of(FEW)
as_is_and_folded = pytest.mark.parametrize("folded", [False, True], ids=["as-is", "folded"])


def test_every_architecture_has_a_case() -> None:
    """And every case is of an architecture that somebody wrote down, under a name of its own."""
    for cases in (CASES, SOME):
        assert {written(case.build()).architecture for case in cases} == {*WRITTEN.names, *DESCRIBED.names}
    assert len({case.name for case in CASES}) == len(CASES)


@each
def test_a_random_alignment_changes_no_output(case: Case) -> None:
    """Rotations of the residual stream included, which there are only after folding."""
    harness.check_random_alignment(case, folded=True)


@some
def test_a_random_alignment_changes_no_output_as_it_is(case: Case) -> None:
    harness.check_random_alignment(case, folded=False)


@few
@as_is_and_folded
def test_every_space_alone_changes_no_output(case: Case, folded: bool) -> None:
    harness.check_each_space(case, folded)


@each
def test_every_axis_is_needed(case: Case) -> None:
    check_every_axis_is_needed(case)


@of(one_in(2, SOME))
def test_gauges_change_no_output(case: Case) -> None:
    harness.check_gauges(case)
