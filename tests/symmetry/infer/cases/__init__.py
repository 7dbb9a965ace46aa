"""Small models of types that no blueprint describes."""

from tests.symmetry.infer.cases import (
    audio,
    decoders,
    diffusion,
    encoders,
    experts,
    multimodal,
    nets,
    own,
    own_sequences,
    seq2seq,
    state_space,
    vision,
)
from tests.symmetry.infer.cases.sample import Sample

MODULES = (
    experts, decoders, encoders, seq2seq, vision, audio, multimodal, state_space, nets, diffusion, own, own_sequences
)  # fmt: skip
SAMPLES: tuple[Sample, ...] = tuple(sample for module in MODULES for sample in module.SAMPLES)
BY_NAME = {sample.name: sample for sample in SAMPLES}
