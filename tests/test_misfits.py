"""The way on where two models have parameters of different shapes."""

from transformers import BertConfig

from fusionlab.misfits import of_shapes, of_sizes


def test_other_numbers_of_classes() -> None:
    configs = [BertConfig(num_labels=3), {"id2label": {"0": "a", "1": "b"}}]
    assert "(classes: 3 and 2; fuse --heads own" in of_shapes([(3, 8), (2, 8)], configs)
    # A written config lacks what is as by default.
    configs = [BertConfig(num_labels=3).to_diff_dict(), {"architectures": ["BertForSequenceClassification"]}]
    assert "(classes: 3 and 2; fuse --heads own" in of_shapes([(3,), (2,)], configs)


def test_added_tokens() -> None:
    configs = [{"vocab_size": 66}, BertConfig(vocab_size=64)]
    told = of_shapes([(66, 64), (64, 64)], configs)
    assert "(tokens: 66 and 64; fusionlab vocab gives" in told


def test_nothing_is_known() -> None:
    assert of_shapes([(3, 8), (3, 9)], [{"hidden_size": 8}, {"hidden_size": 9}]) == ""
    assert of_shapes([(4,), (5,)], [None, None]) == ""


def test_other_sizes_of_one_architecture() -> None:
    """Sizes of parts too, a few of many; of two architectures nothing is known."""
    small, large = BertConfig(hidden_size=24), BertConfig(hidden_size=48, num_hidden_layers=3)
    told = of_shapes([(9, 24), (9, 48)], [small, large])
    assert told.startswith(" (hidden_size: 24 and 48, num_hidden_layers: 12 and 3; fusionlab fuse grows")
    parts = [{"model_type": "clip", "text_config": {"hidden_size": size, "eos_token_id": size}} for size in (8, 16)]
    assert of_sizes(parts).startswith(" (hidden_size: 8 and 16; ")
    assert of_sizes([small, {"model_type": "vit", "hidden_size": 48}]) == ""
