"""Inputs that a transformers model takes, guessed from its config and its forward's arguments."""

from __future__ import annotations

import copy
import inspect
import math
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fusionlab.symmetry.infer.combined_sizes import combined_sizes
from fusionlab.symmetry.infer.patch_inputs import features_of, listed_patches, stacked_patches
from fusionlab.symmetry.inputs import Input, positions_of

_TOKENS, _SAMPLES, _CHOICES = 12, 1200, 2
_THINGS, _PLACES = 3, 2
# Modules of a decoder that attend to an encoder.
_CROSS = re.compile(
    r"(^|\.)(cross_?attn|cross_?attention|crossattention|encoder_attn|encoder_attention|EncDecAttention)$"
)
# Arguments that say how to compute, or take the place of others, or lead to parameters of names of their own.
_BESIDE = re.compile(
    r"^((decoder_|encoder_|pixel_|input_)?(attention_)?mask|\w+_attention_mask|(cross_attn_|decoder_)?head_mask|langs?|"
    r"(decoder_)?inputs_embeds|(decoder_)?position_ids|cache_position|(\w+_)?token_type_ids|past_key_values|mems|"
    r"encoder_outputs|"
    r"(start_|end_)?positions|labels?|.*_labels?|lengths?|noise|config|perm_mask|target_mapping|kwargs|.*cache.*|"
    r"(output_|return_|use_|num_logits|logits_to|interpolate|vision_feature|image_sizes).*)$"
)


def guessed_inputs(model: nn.Module) -> tuple[Input, ...]:
    """The inputs of a model; empty if there is no telling.

    Args:
        model: of transformers; one on the meta device will do.
    """
    m: Any = model
    config, known = m.config, inspect.signature(m.forward).parameters
    main = getattr(m, "main_input_name", "")
    names = {"input_ids", "pixel_values"} if _needs_both(config, known, main) else {main}
    if "pixel_values" in known and (among := _image_among_tokens(m)):
        return among
    inputs: list[Input] = []
    if "input_ids" in names and hasattr(config.get_text_config(), "vocab_size"):
        inputs.append(_tokens(m, "input_ids", _TOKENS))
        inputs += _things(m, inputs[0].shape[0])
        if "global_attention_mask" in known:
            # Tokens that attend to all others do so by projections of their own.
            inputs.append(replace(inputs[0], name="global_attention_mask", vocabulary=_CHOICES))
        if "token_type_ids" in known and any(name.endswith("seg_embed") for name, _ in m.named_parameters()):
            # Scores by whether two tokens are of one segment, which nothing computes where no segments are told.
            inputs.append(replace(inputs[0], name="token_type_ids", vocabulary=_CHOICES))
    if "pixel_values" in names:
        inputs += listed_patches(m) or _image(config)
    if "input_features" in names and hasattr(config, "num_mel_bins"):
        length = 2 * getattr(config, "max_source_positions", 4 * _TOKENS)
        inputs.append(Input("input_features", (config.num_mel_bins, length)))
    if "input_values" in names:
        inputs.append(Input("input_values", (_SAMPLES,)))
    if "bool_masked_pos" in known and "pixel_values" in names and "ForMasked" in type(m).__name__:
        masks = _masks(config)
        inputs += masks if _runs(m, [*inputs, *masks]) else []
    if "noise" in known and "pixel_values" in names:
        # What decides which patches are hidden, and is drawn anew at every call.
        inputs += [replace(one, name="noise", vocabulary=None) for one in _masks(config)]
    decodes = hasattr(config, "is_decoder") or hasattr(config, "add_cross_attention")
    if decodes and "encoder_hidden_states" in known and inputs and _reads_an_encoder(m):
        inputs.append(Input("encoder_hidden_states", (_TOKENS - 1, _encoder_width(config))))
    looks_for_end = "ForSequenceClassification" in type(m).__name__
    starts_itself = "Classification" in type(m).__name__ and getattr(config, "decoder_start_token_id", None) is not None
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in known and inputs and not starts_itself:
        # A classifier of texts looks for the end of the text in what its decoder gives.
        inputs.append(_tokens(m, "decoder_input_ids", _TOKENS if looks_for_end else _TOKENS - 1))
    return tuple(inputs)


def has_all_inputs(model: nn.Module, inputs: Iterable[str]) -> bool:
    """Nothing else that the forward takes could be read by parameters that these inputs leave unread.

    Args:
        model: of transformers.
        inputs: names of the forward's arguments.
    """
    known, given = inspect.signature(model.forward).parameters, set(inputs)
    left = {name for name in known if name not in given and not _BESIDE.search(name)}
    return not left - (set() if _reads_an_encoder(model) else {"encoder_hidden_states"})


def pad_batches(config: Any, class_name: str) -> bool:
    """Give a classifier's config a token for padding where it has none, since such a model refuses batches.

    Args:
        config: of transformers; changed in place.
        class_name: of the model.

    Returns:
        Whether it was changed.
    """
    text = config.get_text_config()
    if "ForSequenceClassification" not in class_name or getattr(text, "pad_token_id", 0) is not None:
        return False
    text.pad_token_id = 0
    return True


def _tokens(m: Any, name: str, length: int) -> Input:
    text, most = m.config.get_text_config(), positions_of(m.config)
    longest = length if most is None else most - _padded(m)
    # Several texts for each question.
    choices = (_CHOICES,) if "ForMultipleChoice" in type(m).__name__ else ()
    return Input(name, (*choices, max(1, min(length, longest))), text.vocab_size)


def _padded(m: nn.Module) -> int:
    """Rows of a table of positions before the first one's, where the table has a row for padding."""
    tables = [table for place, table in m.named_modules() if place.endswith("position_embeddings")]
    rows = [getattr(table, "padding_idx", None) for table in tables]
    return max((row + 1 for row in rows if row is not None), default=0)


def _things(m: Any, length: int) -> list[Input]:
    """Ids of what a text is about, of a vocabulary of its own, and the places in the text that each is named at."""
    known = inspect.signature(m.forward).parameters
    found: list[Input] = []
    for name in known:
        size = getattr(m.config, f"{name.removesuffix('_ids')}_vocab_size", None)
        if not name.endswith("_ids") or not isinstance(size, int):
            continue
        found.append(Input(name, (_THINGS,), size))
        places = f"{name.removesuffix('_ids')}_position_ids"
        if places in known:
            found.append(Input(places, (_THINGS, _PLACES), length))
    return found


def _needs_both(config: Any, known: Any, main: str) -> bool:
    """Images and texts are two inputs of equal right; models that put images among tokens read texts alone as well."""
    tokens = any(name.startswith("image_token") for name in vars(config))
    sees = hasattr(config, "vision_config") or (hasattr(config, "patch_size") and hasattr(config, "vocab_size"))
    # Words with boxes are read without the page, and the caption of an image begins in the decoder if there is one.
    others = set(known) & ({"bbox"} if main == "input_ids" else {"bbox", "decoder_input_ids"})
    return "pixel_values" in known and "input_ids" in known and sees and not tokens and not others


def _image(config: Any) -> list[Input]:
    config = getattr(config, "vision_config", config)
    side = getattr(config, "image_size", 64)
    height, width = (side, side) if isinstance(side, int) else side
    return [Input("pixel_values", (getattr(config, "num_channels", 3), height, width))]


def _image_among_tokens(m: Any) -> tuple[Input, ...]:
    """A text in which an image's features take the place of a token, and the image; empty where there is no telling."""
    config = m.config
    token = getattr(config, "image_token_id", None)
    if not isinstance(token, int) or not hasattr(config, "vision_config") or not hasattr(m, "get_image_features"):
        return ()
    tokens = _tokens(m, "input_ids", _TOKENS)
    if token >= (tokens.vocabulary or 0):
        return ()
    if stacked := stacked_patches(m):
        return _among(m, tokens, token, features_of(m, stacked[1]), stacked)
    try:
        (image,) = _image(config)
        if (factor := getattr(config, "scale_factor", None)) is not None:
            # Several images for each text; squares of patches are folded into one.
            (_, *sides), patch = image.shape, config.vision_config.patch_size
            if any(side // patch % factor for side in sides):
                return ()
            image = replace(image, shape=(1, *image.shape))
            count = math.prod(side // patch // factor for side in sides)
        else:
            # Of a model without memory, so that nobody's weights are run.
            with torch.random.fork_rng(devices=[]), torch.device("meta"), torch.no_grad():
                empty = type(m)(copy.deepcopy(config)).eval()
                features = empty.get_image_features(pixel_values=torch.empty(1, *image.shape, dtype=empty.dtype))
            features = getattr(features, "pooler_output", features)
            count = sum(len(one) for one in features) if isinstance(features, (list, tuple)) else features.shape[-2]
    except Exception:  # a class takes images in any way it likes
        return ()
    return _among(m, tokens, token, count, [image])


def _among(m: Any, tokens: Input, token: int, count: int, image: list[Input]) -> tuple[Input, ...]:
    """The text with a token in as many places as the image has features, which places these are, and the image."""
    length = count + _TOKENS
    kinds = Input("mm_token_type_ids", (length,), numbers=(0, *[1] * count, *[0] * (_TOKENS - 1)))
    told = [kinds] if kinds.name in inspect.signature(m.forward).parameters else []
    return (replace(tokens, shape=(length,), placed=(token, count)), *told, *image)


def _masks(config: Any) -> list[Input]:
    """A mask of hidden patches, for an image of whole patches."""
    sizes = combined_sizes({"image_size": config.image_size, "patch_size": getattr(config, "patch_size", None)})
    return [Input("bool_masked_pos", (sizes["patches"],), vocabulary=2)] if "patches" in sizes else []


def _runs(m: Any, inputs: list[Input]) -> bool:
    """A model takes these inputs; one on the meta device is not asked, since what it computes there may be cached."""
    if m.device.type == "meta":
        return True
    model, generator = copy.deepcopy(m).eval(), torch.Generator().manual_seed(0)
    drawn = {one.name: one.random(1, generator, model.dtype).to(model.device) for one in inputs}
    try:
        with torch.no_grad():
            model(**drawn)
    except Exception:  # a class takes inputs in any way it likes
        return False
    return True


def _reads_an_encoder(m: nn.Module) -> bool:
    """A decoder without an encoder has parameters that attend to one."""
    config: Any = m.config
    alone = not getattr(config, "is_encoder_decoder", False)
    return alone and any(_CROSS.search(name) for name, _ in m.named_modules())


def _encoder_width(config: Any) -> int:
    given = getattr(config, "cross_attention_hidden_size", None)
    return int(given or getattr(config, "hidden_size", None) or config.d_model)
