"""How rows belong to examples and tokens, and which of them count."""

import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.forward import IGNORED
from fusionlab.statistics.layout import Layout, find_layout, fingerprints, shorter, token_masks

MASK = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]]).bool()


@pytest.mark.parametrize(
    ("layout", "leading", "where"),
    [
        (Layout(0, 1, "encoder"), (3, 4), "bt"),
        (Layout(1, 0, "encoder"), (4, 3), "tb"),
        (Layout(0, 2, "encoder"), (3, 2, 4), "bht"),
        (Layout(2, 0, "encoder"), (4, 2, 3), "thb"),
        (Layout(2, 1, "encoder"), (2, 4, 3), "htb"),
    ],
)
def test_rows_that_count(layout: Layout, leading: tuple[int, ...], where: str) -> None:
    """Row by row: it counts if the mask has its token of its example, wherever the two dimensions lie."""
    valid = layout.valid({"encoder": MASK}, torch.Size(leading))
    assert valid is not None
    valid = valid.reshape(leading)
    for place in torch.cartesian_prod(*(torch.arange(size) for size in leading)):
        position = dict(zip(where, place.tolist(), strict=True))
        assert bool(valid[tuple(place)]) == bool(MASK[position["b"], position["t"]])


def test_rows_that_are_flattened_or_have_no_tokens() -> None:
    """One dimension of both goes by the mask as it lies; what is no token counts always."""
    valid = Layout(0, 0, "encoder").valid({"encoder": MASK}, torch.Size((12,)))
    assert valid is not None
    assert valid.tolist() == MASK.flatten().tolist()
    assert Layout(0).valid({"encoder": MASK}, torch.Size((3, 5))) is None


@pytest.mark.parametrize("rows", [2, 6])
def test_rows_that_are_not_one_for_each_token_all_count(rows: int) -> None:
    """Pooled tokens are fewer, and words with entities beside them more; no mask tells which of them are padding."""
    assert Layout(0, 1, "encoder").valid({"encoder": MASK}, torch.Size((3, rows))) is None


@pytest.mark.parametrize(
    ("once", "twice", "shortened", "expected"),
    [
        ((1, 4), (2, 4), {"encoder": (1, 3)}, Layout(0, 1, "encoder")),
        ((4, 1), (4, 2), {"encoder": (3, 1)}, Layout(1, 0, "encoder")),
        ((4,), (8,), {"encoder": (3,)}, Layout(0, 0, "encoder")),
        ((1, 5), (2, 5), {"encoder": (1, 5), "decoder": (1, 4)}, Layout(0, 1, "decoder")),
        ((1, 9), (2, 9), {"encoder": (1, 9)}, Layout(0)),
        ((7, 2), (7, 2), {}, None),
    ],
)
def test_layout_is_found_by_what_follows(
    once: tuple[int, ...], twice: tuple[int, ...], shortened: dict[str, tuple[int, ...]], expected: Layout | None
) -> None:
    """The dimension that doubles is the batch, the one that gets shorter the tokens; without either it is no data."""
    others = {side: torch.Size(shape) for side, shape in shortened.items()}
    assert find_layout(torch.Size(once), torch.Size(twice), others) == expected


@pytest.mark.parametrize(("tokens", "kept"), [([7, 8, 9, 5], [7, 9, 5]), ([7, 5], [5]), ([5], [5, 5])])
def test_the_token_that_is_left_out_is_no_first_or_last_one(tokens: list[int], kept: list[int]) -> None:
    """Classifiers look for the end of a text, some models for its beginning; a decoder's tokens and pixels stay."""
    mask = torch.ones(1, len(tokens), dtype=torch.bool)
    batch = {"input_ids": torch.tensor([tokens]), "attention_mask": mask, "decoder_input_ids": torch.tensor([tokens])}
    found = next(shorter(batch, "encoder", mask))
    assert found["input_ids"].tolist() == [kept]
    assert found["attention_mask"].shape == (1, len(kept))
    assert found["decoder_input_ids"].tolist() == [tokens]


def test_other_tokens_are_left_out_where_the_second_is_needed() -> None:
    """One of each number, and never the first or the last."""
    found = shorter({"input_ids": torch.tensor([[1, 9, 9, 9, 5, 6, 5, 2]])}, "encoder", torch.ones(1, 8))
    assert [batch["input_ids"].tolist()[0] for batch in found] == [
        [1, 9, 9, 5, 6, 5, 2],
        [1, 9, 9, 9, 5, 6, 2],
        [1, 9, 9, 9, 5, 5, 2],
    ]


def test_fingerprints_tell_inputs_apart_by_name_and_shape() -> None:
    """The same bytes under other names or cut otherwise are another example; padding and labels do not count."""
    zeros = {count: torch.zeros(1, count, dtype=torch.long) for count in (2, 4)}
    given = [
        {"a": zeros[2], "b": zeros[4]},
        {"a": zeros[4], "b": zeros[2]},
        {"a": zeros[2], "c": zeros[4]},
        {"a": zeros[2], "b": zeros[4].reshape(1, 2, 2)},
    ]
    assert len({fingerprints(batch)[0] for batch in given}) == 4
    ids, mask = torch.tensor([[5, 6, 7]]), torch.tensor([[1, 1, 0]])
    batch = {"input_ids": ids, "attention_mask": mask}
    padded = {"input_ids": torch.tensor([[5, 6, 9, 9]]), "attention_mask": torch.tensor([[1, 1, 0, 0]])}
    assert fingerprints(batch) == fingerprints({**padded, "labels": torch.ones(1)})
    assert fingerprints(batch) != fingerprints({**batch, "attention_mask": torch.ones_like(mask)})


def test_rows_by_example() -> None:
    """Several rows of one example follow each other, in whatever dimension the batch lies."""
    assert Layout(0).examples(torch.Size((6, 2)), 3).tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert Layout(1).examples(torch.Size((2, 3)), 3).tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("sides", [(), ("encoder",), ("decoder",), ("encoder", "decoder")], ids=str)
def test_each_side_has_its_own_mask(sides: tuple[str, ...]) -> None:
    """Whichever masks a batch has, as booleans; a side without one is left out."""
    names = {"encoder": "attention_mask", "decoder": "decoder_attention_mask"}
    given = {"encoder": MASK.long(), "decoder": MASK.flip(0).long()}
    found = token_masks({"input_ids": torch.ones(3, 4).long(), **{names[side]: given[side] for side in sides}})
    assert found.keys() == set(sides)
    assert all(torch.equal(found[side], given[side].bool()) for side in sides)


def test_a_decoder_without_a_mask_goes_by_its_labels() -> None:
    """Where they are those of its own tokens; a mask of its own comes first."""
    ids, labels = torch.ones(3, 4).long(), torch.ones(3, 4).long().masked_fill(~MASK, IGNORED)
    (found,) = token_masks({"decoder_input_ids": ids, "labels": labels}).items()
    assert found[0] == "decoder"
    assert torch.equal(found[1], MASK)
    assert token_masks({"decoder_input_ids": ids, "labels": torch.ones(3).long()}) == {}
    assert token_masks({"input_ids": ids, "labels": labels}) == {}
    own = {"decoder_input_ids": ids, "labels": labels, "decoder_attention_mask": torch.ones(3, 4)}
    assert bool(token_masks(own)["decoder"].all())


def test_masks_of_the_texts_of_classes_are_not_those_of_images() -> None:
    """They hide tokens that all images share; on a text of their own they count."""
    texts = {"input_ids": torch.ones(3, 2, 4, dtype=torch.long), "attention_mask": MASK[:, None].expand(3, 2, 4)}
    assert token_masks({"pixel_values": torch.zeros(3, 3, 8, 8), **texts}) == {}
    with pytest.raises(InputError, match=r"attention_mask has 3 dimensions; expected the shape \(batch, tokens\)"):
        token_masks(texts)
