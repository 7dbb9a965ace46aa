"""Run mergekit on checkpoints; started by `test_mergekit` under a Python that has it, and imports nothing of ours.

Usage: ``python mergekit_merge.py SETTINGS``, a JSON file with ``configs`` (mergekit's own, by the folder to write to)
and ``masks``, a safetensors file with a mask for ``<position of a model>.<parameter>`` in place of random ones.
"""

import json
import sys
from pathlib import Path

from mergekit import sparsify
from mergekit.config import MergeConfiguration
from mergekit.merge import run_merge
from mergekit.options import MergeOptions
from safetensors.torch import load_file


def use_masks(masks_path, config):
    """Let mergekit draw the given masks: it asks for one with a task vector, by which the mask is found."""
    masks = load_file(masks_path)
    base = load_file(Path(config["base_model"]) / "model.safetensors")
    known = {}
    for position, entry in enumerate(config["models"]):
        for name, tensor in load_file(Path(entry["model"]) / "model.safetensors").items():
            delta = tensor - base[name]
            known[delta.numpy().tobytes()] = masks[f"{position}.{name}"]

    def bernoulli(tensor, density, rescale_norm=None):
        mask = known[tensor.numpy().tobytes()].to(tensor)
        return sparsify.rescaled_masked_tensor(tensor, mask, rescale_norm)

    sparsify.bernoulli = bernoulli


settings = json.loads(Path(sys.argv[1]).read_text())
for output, config in settings["configs"].items():
    if config["merge_method"].startswith("dare"):
        use_masks(settings["masks"], config)
    options = MergeOptions(copy_tokenizer=False, quiet=True, write_model_card=False)
    run_merge(MergeConfiguration.model_validate(config), output, options)
