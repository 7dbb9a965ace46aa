"""The scores on a model card: end models and the merge that is kept, with their intervals."""

from fusionlab.checkpoints.card import Parent, merge_card
from fusionlab.evaluation.card_table import card_table
from tests.evaluation.examples import judged
from tests.evaluation.merges import PAPER, PLAIN


def test_the_merge_that_is_kept_beside_the_end_models() -> None:
    heads, *lines = card_table(judged({PLAIN: 0.3, PAPER: 0.5}, kept=PAPER))
    assert [line[0] for line in lines] == ["one", "two", "this merge (simple, paper)"]
    place = next(index for index, head in enumerate(heads) if head.startswith("digits") and "accuracy" in head)
    assert lines[-1][place].startswith("50.0 (4")
    assert lines[0][place].startswith("95.5 (9")
    assert card_table(judged({})) == []


def test_a_card_has_the_table() -> None:
    parents = [Parent("one", "mit"), Parent("two", "mit")]
    table = card_table(judged({PLAIN: 0.5}))
    text = merge_card(parents, {}, "timm", table)
    rows = [line for line in text.partition("## Scores")[2].partition("## Licences")[0].splitlines() if "|" in line]
    assert len(rows) == len(table) + 1
    assert len({row.count("|") for row in rows}) == 1
    assert "this merge (simple, unmatched)" in rows[-1]
    assert "## Scores" not in merge_card(parents, {}, "timm", card_table(judged({})))
