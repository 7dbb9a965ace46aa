"""Small models of types that no blueprint describes."""

from tests.symmetry.infer.cases import audio, decoders, encoders, experts, seq2seq, state_space, vision
from tests.symmetry.infer.cases.sample import Sample

MODULES = (experts, decoders, encoders, seq2seq, vision, audio, state_space)
SAMPLES: tuple[Sample, ...] = tuple(sample for module in MODULES for sample in module.SAMPLES)
