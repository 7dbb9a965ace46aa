"""Commands over damaged inputs, and what a merge that they write is judged by."""

from pathlib import Path

import numpy as np
import torch

from tests.robustness import strict_reader
from tests.robustness.cases import OUTPUT, Case, Judge, Place


def over_checkpoint(place: Place, damaged: str, must_refuse: bool = False) -> Case:
    """Any command that reads checkpoints, over one that was damaged (``NAME_a`` or ``a``) and its partner.

    Args:
        place: with the damaged checkpoint in it.
        damaged: its name.
        must_refuse: whether nothing but a refusal is right.
    """
    draw = place.draw
    partner = damaged[: -len("a")] + "b" if damaged.endswith("a") else damaged.replace("_a.", "_b.")
    place.copy(partner)
    output = OUTPUT + (".ckpt" if damaged.endswith(".ckpt") else "")
    both = draw.sample([damaged, partner], 2)
    data = "Digits"
    if damaged == "bert_a":
        place.copy("data/text.csv")
        data = "fusionlab.data.TextClassification"
    line = draw.choices(
        [
            ["merge", *both, "--output", output],
            ["match", both[0], "--anchor", both[1], "--output", output],
            ["inspect", damaged],
            ["fuse", "--ckpts", *both, "--output", OUTPUT],
            ["gather", damaged, "--data", data, "--samples", "16", "--output", OUTPUT],
            ["merge", partner, partner_copy(place, partner), "--base", damaged, "--method", "ties", "--output", output],
        ],
        [5, 2, 1, 1, 1, 1],
    )[0]
    if line[0] == "gather" and damaged == "bert_a":
        line += ["--data.path", "data/text.csv", "--data.tokenizer", "bytes", "--data.split_column", "split"]
    is_plain = line[0] == "merge" and "--base" not in line
    return Case(line, judged(place, damaged, partner if is_plain else None), must_refuse)


def partner_copy(place: Place, partner: str) -> str:
    """The same checkpoint once more under another name."""
    suffix = ".ckpt" if partner.endswith(".ckpt") else ""
    name = partner.removesuffix(suffix) + "_again" + suffix
    if not (place.work / name).exists():
        path = place.copy(partner)
        path.rename(place.work / name)
        place.copy(partner)
    return name


def read(folder: Path) -> strict_reader.Tensors:
    """The tensors of a checkpoint folder; pickled ones (only undamaged ones are asked for) by torch."""
    pickled = sorted(folder.glob("*.bin"))
    if not pickled:
        return strict_reader.folder(folder)
    return {name: tensor.numpy() for file in pickled for name, tensor in torch.load(file, weights_only=True).items()}


def judged(place: Place, damaged: str, partner: str | None) -> Judge:
    """Judge by the bytes of the damaged checkpoint; and of a merge with a partner, that it is the mean of both."""
    sound = place.sound

    def judge(work: Path) -> str:
        complaint = strict_reader.complaint_about_weights(work / damaged, sound / damaged)
        if complaint or partner is None or (sound / damaged).is_file() or not (work / OUTPUT).is_dir():
            return complaint
        first = read(sound / damaged if "bin" in damaged else work / damaged)
        second = read(sound / partner)
        merged = strict_reader.folder(work / OUTPUT)
        for name, tensor in first.items():
            mean = (tensor.astype(np.float64) + second[name].astype(np.float64)) / 2
            if name not in merged or not np.allclose(merged[name], mean, rtol=1e-5, atol=1e-6):
                return f"the merge is not the mean in {name}"
        return ""

    return judge
