"""Small models of types that no blueprint describes."""

from tests.symmetry.infer.cases import decoders, experts
from tests.symmetry.infer.cases.sample import Sample

SAMPLES: tuple[Sample, ...] = experts.SAMPLES + decoders.SAMPLES
