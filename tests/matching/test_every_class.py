"""What runs models while it matches them, and what matches some spaces alone, on real classes of every kind."""

import pytest
import torch

import fusionlab
from fusionlab.errors import InputError
from fusionlab.learning.distillation import output_of
from fusionlab.symmetry.roles import Role
from tests.parts import EVERY
from tests.symmetry.infer.cases import audio, decoders, encoders, experts, seq2seq, state_space, vision
from tests.symmetry.infer.cases.sample import Sample, described
from tests.symmetry.models import generator, randomize, relative

KINDS = (experts, decoders, encoders, vision, seq2seq, audio, state_space)
SAMPLES = [sample for kind in KINDS for sample in kind.SAMPLES]
# With copies inside of copies, a stream that is permuted, experts, and rotations that are not.
SOME = [sample for sample in SAMPLES if EVERY or sample.name == "qwen3_next"]
# Sentences that say why a class cannot be matched this way; anything else is a fault.
REFUSALS = ("predicts no labels", "the data does not fit the model", "nothing that gradients can move")
LEARNED = {"steps": 2, "every": 1, "batch_size": 2, "synthetic": 0, "mixtures": 0}


@pytest.mark.parametrize("sample", SOME, ids=lambda sample: sample.name)
def test_every_way_to_match_runs_or_is_refused_in_a_known_sentence(sample: Sample) -> None:
    """And every twin computes its end model's function."""
    models = [randomize(sample.build(), seed) for seed in (0, 1)]
    description = described(models[0], sample)
    data = [{name: x for name, x in sample.inputs(generator(seed)).items() if name != "labels"} for seed in (0, 1)]
    outer = tuple(role for role in description.roles() if role not in (Role.UNITS, Role.RESIDUAL))
    ways = [("git-rebasin", {}), ("activations", {"data": data}), ("learned", {"data": data, **LEARNED})]
    ways += [("learned", {"data": data, "start": "gradients", **LEARNED})]
    ways += [("weights", {"spaces": outer, "start": start}) for start in ("known", "annealed", "as-is") if outer]
    for preset, options in ways:
        try:
            found = fusionlab.alignments(models, 0, preset, **options)
        except InputError as refusal:
            if not any(words in str(refusal) for words in REFUSALS):
                raise
            continue
        with torch.no_grad():
            twin, end = (output_of(one, data[0]) for one in (found[1].apply(models[1]), models[1]))
        # Parts of some classes compute in float32 whatever the model's type.
        assert relative(twin, end) < (1e-5 if preset == "learned" else 1e-6), preset
