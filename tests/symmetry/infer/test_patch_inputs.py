"""Images that come as lists of patches: Qwen2-VL's stacked ones with their grids, SigLIP 2's with masks and sides."""

from typing import Any

import torch
import transformers
from torch import Tensor, nn

from fusionlab.evaluation.preservation import check_preservation
from fusionlab.probes import probes
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.infer.examples import guessed_inputs
from fusionlab.symmetry.infer.models import inferred
from fusionlab.symmetry.infer.patch_inputs import features_of, listed_patches, stacked_patches
from fusionlab.symmetry.infer.shrink import shrink
from fusionlab.symmetry.inputs import Input
from tests.parts import long

TEXT = {
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
}
SMALL = {
    "vocab_size": 61,
    "hidden_size": 48,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2]},
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TOKENS = {"image_token_id": 3, "video_token_id": 4, "vision_start_token_id": 5, "vision_end_token_id": 6}
VISION = {
    "depth": 4,
    "hidden_size": 64,
    "intermediate_size": 72,
    "num_heads": 4,
    "out_hidden_size": 48,
    "patch_size": 4,
    "window_size": 16,
    "fullatt_block_indexes": [1, 3],
}


def qwen2_5_vl(**changes: Any) -> transformers.PreTrainedModel:
    """A small model, of at least two layers of windows and two of whole attention but for changes to its tower."""
    kind = transformers.Qwen2_5_VLForConditionalGeneration
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(kind.config_class(text_config=SMALL, vision_config={**VISION, **changes}, **TOKENS)).eval()


def test_numbers_are_the_same_for_every_example() -> None:
    draw = torch.Generator().manual_seed(0)
    assert Input("grid", (3,), numbers=(1, 6, 4)).random(2, draw).tolist() == [[1, 6, 4], [1, 6, 4]]
    assert Input("square", (2, 2), numbers=(1, 2, 3, 4)).random(1, draw).tolist() == [[[1, 2], [3, 4]]]


def test_stacked_examples_have_no_dimension_of_their_own() -> None:
    draw = torch.Generator().manual_seed(0)
    assert Input("patches", (6, 5), is_stacked=True).random(4, draw).shape == (24, 5)


def test_qwen2_vl_at_its_published_size() -> None:
    """Tower, merger and language model in one blueprint, from the config alone."""
    kind = transformers.Qwen2VLForConditionalGeneration
    vision = {"hidden_size": 3584, "embed_dim": 1280, "depth": 32, "num_heads": 16, "patch_size": 14}
    with torch.device("meta"):
        model = kind(kind.config_class(text_config=TEXT, vision_config=vision))
    found = inferred(model)
    assert found.untouched() == ()
    described = found.after_folding or found
    groups = {str(space.group) for space in described.spaces.values()}
    assert groups >= {"O(3584)", "O1(1280)", "C*(128)", "GL(128)", "C*(80)", "GL(80)", "S(18944)", "S(5120)"}
    ids, kinds, patches, grid = found.inputs
    assert (ids.placed, kinds.numbers) == ((151655, 6), (0, *[1] * 6, *[0] * 11))
    assert (patches.shape, patches.is_stacked, grid.numbers) == ((24, 1176), True, (1, 6, 4))


@long
def test_a_random_twin_of_qwen2_5_vl_computes_the_same() -> None:
    """Images and words in windows that are not all full."""
    model = qwen2_5_vl()
    found = blueprint(model)
    assert found.untouched() == ()
    alignment = Alignment.random(found, torch.Generator().manual_seed(1))
    assert check_preservation(model, alignment.apply(model), alignment, count=2).exact < 1e-9


def test_probes_are_of_whole_images() -> None:
    model = qwen2_5_vl()
    (patches, grid) = stacked_patches(model)
    first, second = probes(model, 3, batch_size=2)
    assert (len(first["pixel_values"]), len(second["pixel_values"])) == (2 * patches.shape[0], patches.shape[0])
    assert first["image_grid_thw"].tolist() == [list(grid.numbers or ())] * 2
    assert int((first["input_ids"] == 3).sum()) == 2 * features_of(model, grid)


def test_siglip2_takes_patches_with_a_mask_and_sides() -> None:
    kind = transformers.Siglip2ForImageClassification
    with torch.device("meta"):
        model = kind(kind.config_class(num_labels=5))
    found = inferred(model)
    assert [one.name for one in found.inputs] == ["pixel_values", "spatial_shapes", "pixel_attention_mask"]
    assert found.inputs[1].numbers == (3, 2)
    groups = [str(space.group) for space in found.spaces.values()]
    assert (groups.count("GL(64)"), groups.count("S(3072)")) == (24, 12)


def test_other_models_list_no_patches() -> None:
    with torch.device("meta"):
        model = transformers.ViTModel(transformers.ViTConfig())
    assert (listed_patches(model), stacked_patches(model)) == ([], [])


class Scaled(nn.Module):
    """Takes a number and one row of offsets beside its examples."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor, times: Tensor, offset: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x * times + offset)))


def test_what_is_given_once_makes_no_stack_of_the_rest() -> None:
    draw = torch.Generator().manual_seed(0)
    inputs = {"x": torch.randn(4, 6, generator=draw), "times": torch.tensor(2), "offset": torch.ones(1, 6)}
    found = {one.name: one for one in infer(Scaled(), inputs, "scaled").inputs}
    assert (found["x"].shape, found["x"].is_stacked) == ((6,), False)
    assert found["offset"].shape == (6,)


class Picked(nn.Module):
    """Takes one example's rows by number."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(5, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x[index])))


def test_rows_that_are_picked_are_no_stack() -> None:
    draw = torch.Generator().manual_seed(0)
    inputs = {"x": torch.randn(8, 5, generator=draw), "index": torch.tensor([0, 3, 5, 6])}
    found = {one.name: one for one in infer(Picked(), inputs, "picked").inputs}
    assert (found["x"].shape, found["x"].is_stacked) == ((5,), False)


def test_a_list_of_layers_keeps_one_of_each_kind() -> None:
    """Layers of whole attention and of windows are alike but for the config's list."""
    vision = shrink(qwen2_5_vl()).config.to_dict()["vision_config"]
    assert 0 < len(vision["fullatt_block_indexes"]) < vision["depth"]


def test_an_example_shows_what_is_stacked_and_what_never_differs() -> None:
    model = qwen2_5_vl(depth=1, fullatt_block_indexes=[0])
    draw = torch.Generator().manual_seed(0)
    inputs = {one.name: one.random(2, draw) for one in guessed_inputs(model)}
    found = {one.name: one for one in infer(model, inputs, "qwen").inputs}
    assert found["pixel_values"].is_stacked
    assert found["image_grid_thw"].numbers == tuple(inputs["image_grid_thw"][0].tolist())
    assert found["mm_token_type_ids"].numbers is not None
    assert found["input_ids"].placed == (3, sum(found["mm_token_type_ids"].numbers))
