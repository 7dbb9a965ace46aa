"""The way on where two models have parameters of different shapes."""

from transformers import BertConfig

from fusionlab.misfits import of_labels, of_shapes, of_sizes


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


def test_labels_in_another_order() -> None:
    """Of configs, of their files and of timm; other labels, or none, are something else."""
    plain, turned = ({"id2label": dict(enumerate(names))} for names in (["a", "b", "c"], ["b", "a", "c"]))
    told = of_labels(["one", "two"], [plain, turned])
    assert told is not None
    assert told.startswith("one and two have the same labels in another order (a, b, c and b, a, c), so that rows of")
    assert "fuse --heads union" in told
    stored = {"id2label": {"1": "a", "0": "b", "2": "c"}}
    assert of_labels(["one", "two"], [BertConfig(**plain), stored]) is not None
    assert of_labels(["one", "two"], [turned, stored]) is None
    timm = [{"pretrained_cfg": {"label_names": names}} for names in (["a", "b"], ["b", "a"])]
    assert of_labels(["one", "two"], timm) is not None
    assert of_labels(["one", "two"], [plain, {"id2label": {0: "a", 1: "b", 2: "d"}}]) is None
    assert of_labels(["one", "two"], [plain, None]) is None
    many = [{"id2label": dict(enumerate(names))} for names in ("abcd", "bacd")]
    assert "(a, b, c, ... and b, a, c, ...)" in str(of_labels(["one", "two"], many))
