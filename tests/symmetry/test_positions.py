"""How many tokens a model's positions reach, under whichever name a config says so."""

import pytest
import transformers

from fusionlab.symmetry.inputs import positions_of


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (transformers.BertConfig(max_position_embeddings=30), 30),
        (transformers.GPT2Config(n_positions=31), 31),
        (transformers.MptConfig(max_seq_len=32), 32),
        (transformers.WhisperConfig(max_source_positions=99, max_target_positions=33), 33),
        (transformers.CLIPConfig(text_config={"max_position_embeddings": 34}), 34),
        (transformers.T5Config(), None),
        (transformers.ViTConfig(), None),
        (None, None),
    ],
    ids=lambda one: type(one).__name__,
)
def test_the_number_under_each_name(config: object, expected: int | None) -> None:
    assert positions_of(config) == expected
