"""Models of sound: waveforms, and what is made of text for speech."""

from tests.symmetry.infer.cases.sample import VOCABULARY, Sample, floats, pretrained, together, tokens

CONVOLUTIONS = {
    "conv_dim": (10, 14),
    "conv_stride": (4, 2),
    "conv_kernel": (8, 3),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 6,
    "num_conv_pos_embedding_groups": 3,
    "apply_spec_augment": False,
}
WAVE = CONVOLUTIONS | {
    "vocab_size": 13,
    "hidden_size": 24,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "layerdrop": 0.0,
    "num_labels": 5,
    "classifier_proj_size": 18,
}


def wave(name: str, head: str, **config: object) -> Sample:
    return pretrained(name, head, floats("input_values", 90), **(WAVE | config))


SAMPLES: tuple[Sample, ...] = (
    wave("wav2vec2", "Wav2Vec2ForCTC"),
    wave(
        "wav2vec2 (norms first)", "Wav2Vec2ForCTC", feat_extract_norm="layer", do_stable_layer_norm=True, conv_bias=True
    ),
    wave("hubert", "HubertForSequenceClassification", use_weighted_layer_sum=True),
    wave("hubert (batch norm)", "HubertForCTC", conv_pos_batch_norm=True),
    wave("wavlm", "WavLMForCTC", num_buckets=9, max_bucket_distance=11),
    pretrained(
        "speecht5",
        "SpeechT5ForSpeechToText",
        together(floats("input_values", 90), tokens("decoder_input_ids", 5, batch=2)),
        **CONVOLUTIONS,
        vocab_size=VOCABULARY,
        hidden_size=24,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=28,
        encoder_layerdrop=0.0,
        decoder_layers=1,
        decoder_ffn_dim=34,
        decoder_attention_heads=3,
        decoder_layerdrop=0.0,
        encoder_max_relative_position=5,
        max_text_positions=19,
    ),
    pretrained(
        "seamless_m4t (text)",
        "SeamlessM4TForTextToText",
        together(tokens(), tokens("decoder_input_ids", 5)),
        vocab_size=VOCABULARY,
        hidden_size=24,
        max_position_embeddings=19,
        encoder_layers=1,
        decoder_layers=1,
        encoder_ffn_dim=28,
        decoder_ffn_dim=34,
        encoder_attention_heads=4,
        decoder_attention_heads=3,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        pad_token_id=0,
    ),
)
