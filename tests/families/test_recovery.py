"""Every architecture is found again by its weights, covered, stored and rounded: the cases of `test_families`.

A file of its own, so that two processes share the work: from the last case to the first, so that what either infers
is known to the other when they meet.
"""

from pathlib import Path

from fusionlab.matching.presets import preset
from tests.families import harness
from tests.families.harness import Case
from tests.families.test_families import FEW, MOST, SOME, of
from tests.parts import one_in

each, half, few = of(MOST[::-1]), of(one_in(2, MOST[::-1])), of(FEW[::-1])
# Found again by make test, others each: moved by an element, brought into a random basis, or stored.
one, other = (of(one_in(5, [*SOME[at::-1], *SOME[:at:-1]])) for at in (-1, -3))
stored = of(one_in(3, [case for case in SOME[::-1] if case.stored]))
fewer = of(one_in(3, FEW[::-1]))


@one
def test_a_planted_alignment_is_recovered(case: Case) -> None:
    harness.check_planted_alignment_is_recovered(case, folded=True)


@fewer
def test_a_planted_alignment_is_recovered_as_it_is(case: Case) -> None:
    harness.check_planted_alignment_is_recovered(case, folded=False)


@other
def test_a_model_in_a_random_basis_is_found_again_by_its_weights(case: Case) -> None:
    harness.check_hidden_model_is_found(case, preset("weights", temperatures=5))


@half
def test_coverage_is_as_listed(case: Case) -> None:
    harness.check_coverage(case)


@each
def test_every_space_knows_its_layer(case: Case) -> None:
    harness.check_layers(case)


@each
def test_every_block_has_elements_of_its_own(case: Case) -> None:
    harness.check_elements(case)


@stored
def test_a_saved_twin_loads(case: Case, tmp_path: Path) -> None:
    harness.check_saved_twin_loads(case, tmp_path)


@few
def test_bfloat16_in_bfloat16_out(case: Case) -> None:
    harness.check_bfloat16(case)
