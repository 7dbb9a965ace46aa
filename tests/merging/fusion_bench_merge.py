"""Run FusionBench on tensors; started by `test_fusion_bench` under a Python that has it, and imports nothing of ours.

Usage: ``python fusion_bench_merge.py GIVEN FOUND``, two safetensors files: parameters by ``<number of models>.<place, 0
of the base model>.<name>``, likewise Gram matrices and Fisher information, their places behind ``gram`` and ``fisher``,
and what comes out by ``<number of models>.<method>.<name>``.
"""

import sys

import torch
from fusion_bench.method.fisher_merging.fisher_merging import merging_with_fisher_weights
from fusion_bench.method.isotropic_merging.iso_utils import iso_c, iso_cts
from fusion_bench.method.knots.knots_utils import subspace_alignment
from fusion_bench.method.regmean.regmean import merging_with_regmean_weights
from fusion_bench.method.tall_mask.task_arithmetic import generate_task_masks
from fusion_bench.method.task_singular_vector.utils import TSVM_utils
from fusion_bench.method.ties_merging.ties_merging_utils import ties_merging
from fusion_bench.method.wudi.wudi import wudi_merging
from safetensors.torch import load_file, save_file


def knots(changes):
    """TIES of all entries of every matrix's aligned factors (a share of 1 would fail); the mean of all else."""
    merged = {name: sum(change[name] for change in changes) / len(changes) for name in changes[0]}
    for name in [name for name, tensor in merged.items() if tensor.dim() == 2]:
        left, sizes, rights = subspace_alignment([change[name] for change in changes], eps=1e-12)
        rows = torch.stack([(sizes[:, None] * right).flatten() for right in rights])
        factor = ties_merging(rows, reset_thresh=1 - 1e-9, merge_func="dis-mean")
        merged[name] = left @ factor.reshape(rights[0].shape)
    return merged


given, found = {}, {}
for key, tensor in load_file(sys.argv[1]).items():
    count, place, name = key.split(".")
    given.setdefault(count, {}).setdefault(place, {})[name] = tensor
for count, states in given.items():
    base, *models = (states[place] for place in sorted(filter(str.isdigit, states), key=int))
    grams, fishers = ([states[f"{what} {place}"] for place in range(1, len(models) + 1)] for what in ("gram", "fisher"))
    changes = [{name: model[name] - base[name] for name in base} for model in models]
    merged = {
        "tsv_m": TSVM_utils.compute_and_sum_svd_mem_reduction(changes, accelerator="cpu"),
        "iso_c": iso_c(changes, accelerator="cpu"),
        "iso_cts 0.8": iso_cts(changes, 0.8, accelerator="cpu"),
        "iso_cts 0.4": iso_cts(changes, 0.4, accelerator="cpu"),
        "knots": knots(changes),
        "wudi": wudi_merging(changes, accelerator="cpu", iter_num=300),
    }
    # A map is known by its weight, with that ending.
    weights = {f"{name}.weight": [model[name] for model in models] for name in grams[0]}
    for ratio in (0.9, 1.0):
        solved = merging_with_regmean_weights(weights, grams, ratio)
        merged[f"regmean {ratio}"] = {name.removesuffix(".weight"): tensor for name, tensor in solved.items()}
    every, shares = {name: [model[name] for model in models] for name in fishers[0]}, torch.ones(len(models)).double()
    for normalize in (False, True):
        merged[f"fisher {normalize}"] = merging_with_fisher_weights(every, fishers, shares, normalize, 0.0)
    total = {name: sum(change[name] for change in changes) for name in base}
    zeros = {name: torch.zeros_like(tensor) for name, tensor in base.items()}
    for place, change in enumerate(changes):
        # Of task vectors, so that distances are to zero and to the sum.
        merged[f"mask {place}"] = generate_task_masks(total, change, zeros, 0.4)
    for job, state in merged.items():
        found |= {f"{count}.{job}.{name}": tensor.detach().contiguous() for name, tensor in state.items()}
save_file(found, sys.argv[2])
