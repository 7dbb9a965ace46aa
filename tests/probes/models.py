"""Small models of every kind of input, and a tokenizer."""

from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    CLIPConfig,
    CLIPModel,
    GPT2Config,
    GPT2LMHeadModel,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from tests.commands.small import bert, randomized, timm_vit, vit

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
TEXT = {**SMALL, "vocab_size": 31, "max_position_embeddings": 20}


class Tokenizer:
    """What probes ask of a tokenizer."""

    cls_token_id, sep_token_id, pad_token_id, mask_token_id = 3, 4, 0, 5
    all_special_ids = (0, 1, 3, 4, 5)


def writer(vocabulary: int = 31) -> nn.Module:
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 20}
    return randomized(GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, bos_token_id=1, eos_token_id=2, **size)), 0)


def clip() -> nn.Module:
    text = {**TEXT, "projection_dim": 8, "eos_token_id": 30, "bos_token_id": 29, "pad_token_id": 0}
    vision = {**SMALL, "image_size": 8, "patch_size": 4, "num_channels": 3, "projection_dim": 8}
    return randomized(CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)), 0)


def seq2seq() -> nn.Module:
    size = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    return randomized(
        BartForConditionalGeneration(BartConfig(vocab_size=31, max_position_embeddings=20, **size, **heads, **ids)), 0
    )


MODELS = {
    "vit": vit,
    "timm": timm_vit,
    "bert": bert,
    "roberta": lambda: randomized(RobertaForSequenceClassification(RobertaConfig(**TEXT)), 0),
    "masked": lambda: randomized(BertForMaskedLM(BertConfig(**TEXT)), 0),
    "causal": writer,
    "clip": clip,
    "seq2seq": seq2seq,
}
