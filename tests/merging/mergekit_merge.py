"""Run mergekit on checkpoints; started by `test_mergekit` under a Python that has it, and imports nothing of ours.

Usage: ``python mergekit_merge.py SETTINGS``, a JSON file with ``configs`` (mergekit's own, by the folder to write to)
and ``draws``, a safetensors file with numbers from 0 to 1 for the entries of ``<position of a model>.<parameter>``.
"""

import json
import sys
from pathlib import Path

import torch
from mergekit import sparsify
from mergekit.config import MergeConfiguration
from mergekit.merge import run_merge
from mergekit.options import MergeOptions
from safetensors.torch import load_file

MAGPRUNE = sparsify.della_magprune
BERNOULLI = torch.bernoulli


def use_draws(draws_path, config):
    """Let mergekit use the given draws: it asks for some with a task vector, by which they are found."""
    draws = load_file(draws_path)
    base = load_file(Path(config["base_model"]) / "model.safetensors")
    known = {}
    for position, entry in enumerate(config["models"]):
        for name, tensor in load_file(Path(entry["model"]) / "model.safetensors").items():
            delta = tensor - base[name]
            known[delta.numpy().tobytes()] = draws[f"{position}.{name}"]

    def bernoulli(tensor, density, rescale_norm=None):
        mask = (known[tensor.numpy().tobytes()] < density).to(tensor)
        return sparsify.rescaled_masked_tensor(tensor, mask, rescale_norm)

    def magprune(tensor, density, epsilon, rescale_norm=None):
        """mergekit's own but for the draws, and for dividing by the probabilities that it computes."""
        numbers, found = known[tensor.numpy().tobytes()], []

        def drawn(probabilities):
            found.append(probabilities)
            return (numbers.reshape(probabilities.shape) < probabilities).to(probabilities)

        torch.bernoulli = drawn
        kept = MAGPRUNE(tensor, density, epsilon, rescale_norm)
        torch.bernoulli = BERNOULLI
        return kept / found[0].reshape(kept.shape)

    sparsify.bernoulli = bernoulli
    sparsify.della_magprune = magprune


settings = json.loads(Path(sys.argv[1]).read_text())
for output, config in settings["configs"].items():
    if config["merge_method"].startswith(("dare", "della")):
        use_draws(settings["draws"], config)
    options = MergeOptions(copy_tokenizer=False, quiet=True, write_model_card=False)
    run_merge(MergeConfiguration.model_validate(config), output, options)
