"""Models at the sizes that their configs have by default, without memory: what is inferred is of those sizes."""

from typing import Any

import pytest
import torch
import transformers
from torch import nn

from fusionlab.symmetry import Blueprint, SymmetryError
from fusionlab.symmetry.infer import models, sizes
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.infer.copies import dissolved, gathered
from fusionlab.symmetry.infer.examples import guessed_inputs, has_all_inputs, pad_batches
from fusionlab.symmetry.infer.grow import grow
from fusionlab.symmetry.infer.models import inferred
from fusionlab.symmetry.infer.shrink import shrink
from fusionlab.symmetry.roles import Role
from tests.parts import long


def on_meta(class_name: str, **changes: Any) -> nn.Module:
    made = getattr(transformers, class_name)
    with torch.device("meta"):
        model: nn.Module = made(made.config_class(**changes))
    return model


def groups(found: Blueprint, role: Role) -> set[tuple[str, int]]:
    """The groups of a role, each with the number of its copies."""
    return {(str(space.group), space.count) for space in found.spaces.values() if space.role == role}


def test_a_text_beside_an_image_ends_where_it_is_read() -> None:
    """CLIP tells a text by what it has computed at its end: elsewhere queries and keys would be unread."""
    found = inferred(on_meta("CLIPTextModelWithProjection"))
    assert groups(found, Role.QUERY_KEY) == {("GL(64)", 8)}
    assert found.inputs[0].last == 49407


def test_one_layer_that_runs_many_times_stands_for_itself() -> None:
    """ALBERT's units pass a polynomial, whose terms are added: they are units all the same."""
    found = inferred(on_meta("AlbertModel"))
    assert groups(found, Role.UNITS) == {("S(16384)", 1)}
    assert groups(found, Role.QUERY_KEY) == {("GL(64)", 64)}


def test_lengths_that_are_alike_by_chance_say_nothing_of_each_other() -> None:
    """MPNet's 32 buckets of distances, beside the small model's 32 positions; 4 registers beside patches of 4."""
    assert groups(inferred(on_meta("MPNetModel")), Role.QUERY_KEY) == {("GL(64)", 12)}
    assert groups(inferred(on_meta("Dinov2WithRegistersModel")), Role.VALUE_OUTPUT) == {("GL(64)", 12)}


def test_heads_lie_in_groups_of_channels() -> None:
    """SqueezeBERT's 12 heads of 64 in the 4 groups of its convolutions."""
    found = inferred(on_meta("SqueezeBertForSequenceClassification"))
    assert groups(found, Role.VALUE_OUTPUT) == {("GL(64)", 12)}


@long
def test_heads_that_positions_tell_apart_are_as_many_as_the_model_has() -> None:
    """BLOOM lists queries, keys and values head by head, MPT all queries first: a space for each, in its place."""
    bloom = inferred(on_meta("BloomForCausalLM", n_head=16))
    assert bloom.spaces["layers.1.qk.copy15"].index == ()
    assert groups(bloom, Role.VALUE_OUTPUT) == {("GL(4)", 1)}
    (fused, _) = bloom.parameters["transformer.h.1.self_attention.query_key_value.weight"]
    names = [part.space for part in fused.parts]  # type: ignore[union-attr]
    assert names == [f"layers.1.{kind}.copy{head}" for head in range(16) for kind in ("qk", "qk", "vo")]
    mpt = inferred(on_meta("MptForCausalLM"))
    (fused, _) = mpt.parameters["transformer.blocks.1.attn.Wqkv.weight"]
    names = [part.space for part in fused.parts]  # type: ignore[union-attr]
    assert names == [f"layers.1.{kind}.copy{head}" for kind in ("qk", "qk", "vo") for head in range(16)]
    assert not [name for name in mpt.spaces if "numbered" in name]


def test_heads_are_split_by_a_number_of_the_code() -> None:
    """CodeGen's 16 heads lie in four blocks of queries, values and keys; a quarter of each head's coordinates turn."""
    found = inferred(on_meta("CodeGenForCausalLM"))
    assert groups(found, Role.HEADS) == {("S(4)", 1), ("S(4)", 4)}
    assert groups(found, Role.QUERY_KEY) == {("C*(64)", 16), ("GL(192)", 16)}
    assert found.untouched() == ("lm_head.bias",)


def test_of_many_experts_each_is_chosen_by_some_token() -> None:
    """Three texts leave some of 8 experts unread; 64 leave none."""
    sizes = {"d_model": 24, "d_kv": 5, "d_ff": 28, "num_heads": 4, "vocab_size": 37, "num_experts": 8}
    layers = {"num_layers": 1, "num_decoder_layers": 1, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 0}
    kind = transformers.SwitchTransformersForConditionalGeneration
    model = kind(kind.config_class(**sizes, **layers, decoder_start_token_id=0))
    assert not [name for name in models.described(model, None).untouched() if "expert" in name]


def test_a_decoder_alone_reads_an_encoder() -> None:
    found = inferred(on_meta("BartForCausalLM"))
    assert [one.name for one in found.inputs] == ["input_ids", "encoder_hidden_states"]
    assert not [name for name in found.untouched() if "encoder_attn" in name]


def test_an_image_among_the_words() -> None:
    """LLaVA: one blueprint of tower, projector and language model, whose stream the projector writes to."""
    found = inferred(on_meta("LlavaForConditionalGeneration", text_config={"model_type": "llama", "vocab_size": 32064}))
    (words, image) = found.inputs
    assert (words.placed, words.shape, image.shape) == ((32000, 576), (588,), (3, 336, 336))
    ids = words.random(2, torch.Generator().manual_seed(0))
    assert bool((ids[:, 1:577] == 32000).all())
    assert int((ids == 32000).sum()) == 2 * 576
    stream = found.parameters["lm_head.weight"][1]
    assert found.parameters["model.multi_modal_projector.linear_2.weight"][0].space == stream.space  # type: ignore[union-attr]
    assert str(found.spaces[stream.space].group) == "S(4096)"  # type: ignore[union-attr]


def test_a_token_beyond_the_words_takes_no_image() -> None:
    """LLaVA's default config places images by a token that its language model has not."""
    with pytest.raises(SymmetryError, match="nothing says where an image's features are placed"):
        inferred(on_meta("LlavaForConditionalGeneration"))


FOLDING = ["Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"]
WORDS = {"model_type": "llama", "vocab_size": 128259}


@pytest.mark.parametrize("name", FOLDING[:1])
def test_squares_of_patches_among_the_words(name: str) -> None:
    """An image of 32 by 32 patches is 8 by 8 features, each of a square of 16 patches that the projector reads."""
    model = on_meta(name, text_config=WORDS, vision_config={"image_size": 512, "patch_size": 16}, scale_factor=4)
    found = inferred(model)
    (words, image) = found.inputs
    assert (words.placed, words.shape, image.shape) == ((128257, 64), (76,), (1, 3, 512, 512))
    stream = found.parameters["lm_head.weight"][1]
    (written, read) = found.parameters["model.connector.modality_projection.proj.weight"]
    assert written.space == stream.space  # type: ignore[union-attr]
    tower = found.parameters["model.vision_model.post_layernorm.weight"][0]
    assert read.size == 16 * (tower.size or 0)
    assert found.untouched() == ()


@pytest.mark.parametrize("name", FOLDING[1:])
def test_patches_that_make_no_whole_squares_are_refused(name: str) -> None:
    """7 by 7 patches, folded two by two, as the default config says."""
    model = on_meta(name, text_config=WORDS)
    with pytest.raises(SymmetryError, match="nothing says where an image's features are placed"):
        inferred(model)


def test_entities_beside_the_words() -> None:
    """LUKE's entities have a vocabulary of their own, places in the text, and maps that attend to them."""
    found = inferred(on_meta("LukeForMaskedLM"))
    assert {one.name: (one.shape, one.vocabulary) for one in found.inputs[1:]} == {
        "entity_ids": ((3,), 500000),
        "entity_position_ids": ((3, 2), 32),
    }
    assert not [name for name in found.untouched() if "2" in name or "entity_embeddings" in name]
    assert groups(found, Role.QUERY_KEY) == {("GL(64)", 12)}


def test_heads_are_no_groups_of_channels() -> None:
    """SpeechT5's decoder has as many heads as its encoder, whose convolution of positions has 16 groups."""
    found = inferred(on_meta("SpeechT5ForSpeechToText"))
    heads = {str(space.group) for name, space in found.spaces.items() if name.endswith("_attn.heads")}
    assert heads == {"S(12)"}


def test_a_number_of_heads_is_no_width_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no name says how many heads there are, their width is open: the encoder's 12 heads make none 12 wide.

    Some versions' classes say the width in another way; it is 64 then.
    """
    monkeypatch.setitem(sizes.CALLED, Role.HEADS, "nothing is called so")
    model = on_meta("SpeechT5ForSpeechToText", decoder_layers=5)
    shrunk = shrink(model)
    draw = torch.Generator().manual_seed(0)
    small = infer(shrunk.build(), {one.name: one.random(3, draw) for one in shrunk.inputs}, "speecht5")
    told, found = "", None
    try:
        found = grow(small, shrunk, {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()})
    except SymmetryError as error:
        told = str(error)
    if found is None:
        assert "neither shapes nor config say the size of 'decoder" in told
    else:
        assert groups(found, Role.VALUE_OUTPUT) == {("GL(64)", 12)}


def test_what_no_input_reaches_may_be_unread() -> None:
    """SigLIP's classifier does not use the head that pools images; there is nothing else that could be given."""
    model = on_meta("SiglipForImageClassification")
    assert has_all_inputs(model, ["pixel_values"])
    assert not has_all_inputs(on_meta("SmolVLMForConditionalGeneration", text_config=WORDS), ["input_ids"])
    assert "vision_model.head.probe" in inferred(model).untouched()


def test_a_classifier_without_a_token_for_padding_takes_batches() -> None:
    """The small model's config gets one; the real one's is left as it is."""
    model = on_meta("GPT2ForSequenceClassification")
    assert model.config.pad_token_id is None
    assert groups(inferred(model), Role.UNITS) == {("S(3072)", 1)}
    assert model.config.pad_token_id is None
    assert not pad_batches(transformers.GPT2Config(), "GPT2LMHeadModel")


def test_masks_are_inputs_of_models_that_fill_them() -> None:
    found = inferred(on_meta("ViTForMaskedImageModeling"))
    assert {one.name: one.shape for one in found.inputs} == {"pixel_values": (3, 224, 224), "bool_masked_pos": (196,)}
    assert "vit.embeddings.mask_token" not in found.untouched()


def test_fields_that_some_layers_have_of_their_own_stay_in_proportion() -> None:
    """Gemma 4's global layers have heads of twice the width."""
    small = shrink(on_meta("Gemma4ForCausalLM")).config
    everywhere, own = small.to_dict()["head_dim"], small.to_dict()["per_layer_config"]
    assert own
    assert {fields["head_dim"] for fields in own.values()} == {2 * everywhere}


@long
def test_tables_that_list_every_layer_are_as_long_as_the_model_is_deep() -> None:
    """Gemma 4's layers read 256 numbers each of one row of 30 times 256."""
    found = inferred(on_meta("Gemma4ForCausalLM"))
    (rows, _) = found.parameters["model.per_layer_model_projection.weight"]
    (own, _) = found.parameters["model.layers.29.per_layer_input_gate.weight"]
    assert rows.parts == (own,) * 30  # type: ignore[union-attr]
    assert own.size == 256


def test_numbered_spaces_are_gathered_and_dissolved_without_loss() -> None:
    """A small BLOOM's blueprint is what it was, in every field."""
    model = transformers.BloomForCausalLM(transformers.BloomConfig(hidden_size=24, n_layer=2, n_head=3, vocab_size=53))
    found = infer(model, {"input_ids": torch.randint(53, (3, 9), generator=torch.Generator().manual_seed(0))}, "bloom")
    together = gathered(found)
    assert "layers.0.vo" in together.spaces
    assert not [name for name in together.spaces if "copy" in name]
    again = dissolved(together)
    assert again == found
    assert again.trials == found.trials
    assert again.after_folding == found.after_folding


def test_numbered_blocks_are_gathered_and_dissolved_without_loss() -> None:
    """A bare SqueezeBERT's units, in blocks that are permuted inside of each group of channels."""
    groups = dict.fromkeys(("q_groups", "k_groups", "v_groups", "intermediate_groups", "output_groups"), 3)
    sizes = {"hidden_size": 30, "embedding_size": 30, "num_attention_heads": 6, "intermediate_size": 36}
    model = transformers.SqueezeBertModel(
        transformers.SqueezeBertConfig(vocab_size=37, num_hidden_layers=1, **sizes, **groups)
    )
    found = infer(model, {"input_ids": torch.randint(37, (3, 9), generator=torch.Generator().manual_seed(0))}, "bare")
    assert any("copy" in name for name in found.spaces)
    assert dissolved(gathered(found)) == found


def test_drawn_noise_is_an_input() -> None:
    """ViTMAE draws which patches it hides; with the draw given its outputs can be compared."""
    assert [one.name for one in guessed_inputs(on_meta("ViTMAEModel"))] == ["pixel_values", "noise"]
