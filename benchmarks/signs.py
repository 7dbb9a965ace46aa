"""Signs and translations, before and after: what is left half way between language models of different seeds.

    python benchmarks/signs.py --types gemma2 gemma3_text qwen3 olmo2 --seeds 10 11 12 13 --markdown signs.md

Each model has 3 layers, is 64 wide and learns 500 steps of 16 blocks of 128 bytes of Tiny Shakespeare, in the order of
its seed; every two of them are a pair. All but BERT are types whose signs stand in no larger group: streams whose gains
cannot be folded (norms after branches, a tied output embedding), and queries and keys behind norms. *Without* is the
same blueprint with every group of signs taken out. BERT, as a language model, has a norm after each branch and no
signs, but translations: key and value biases, and the mean of what each norm reads. *Without* is the gauge without
`biases` there; distances are then of different gauges and say nothing of each other. Barriers are of the loss on 128
test blocks, the highest of five points of each line.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from settings import Batch, Setting
from torch import nn
from trained_rows import text
from transformers import AutoConfig, AutoModelForCausalLM

import fusionlab
from fusionlab.atomic import atomic_file
from fusionlab.matching.align import gauged, in_one_basis
from fusionlab.matching.matchers.registry import Models
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.presets import preset
from fusionlab.matching.weights import squared_distance
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.groups import Signs
from fusionlab.symmetry.infer.leaving_out import without

CONFIG = "mixtral_shakespeare_small.yaml"
COMMON = {
    "vocab_size": 259, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 257, "eos_token_id": 257,
    "pad_token_id": 256,
}  # fmt: skip
TYPES: dict[str, dict[str, Any]] = {
    "gemma2": {"head_dim": 16, "query_pre_attn_scalar": 16},
    "gemma3_text": {"head_dim": 16, "query_pre_attn_scalar": 16},
    "qwen3": {"head_dim": 16, "tie_word_embeddings": True},
    "olmo2": {},
    "bert": {"is_decoder": True, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}
STEPS, BATCH, RATE, WARMUP = 500, 16, 3e-3, 30
TESTS, POINTS = 128, 5


def trained(model_type: str, seed: int, blocks: torch.Tensor, folder: Path) -> nn.Module:
    """The end model of a type and a seed; made where it is missing."""
    path = folder / f"{model_type}_seed{seed}.pt"
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **COMMON, **TYPES[model_type]))
    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
        return model.eval()
    order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(seed))
    matrices = [p for p in model.parameters() if p.ndim > 1]
    groups: list[dict[str, Any]] = [
        {"params": matrices},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=RATE, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, STEPS, pct_start=WARMUP / STEPS)
    model.train()
    for step in range(STEPS):
        chosen = order[torch.arange(step * BATCH, (step + 1) * BATCH) % len(order)]
        loss = model(input_ids=blocks[chosen], labels=blocks[chosen], use_cache=False).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        torch.save(model.state_dict(), file)
    return model.eval()


def without_signs(description: Blueprint) -> Blueprint:
    """The blueprint with every group of signs taken out, in every gauge."""
    found = description
    while signs := [s.name for b in (found, found.after_folding) if b for s in b.spaces.values() if _signs(s.group)]:
        found = without(found, frozenset(signs), "signs are left out")
    return found


def _signs(group: object) -> bool:
    return isinstance(group, Signs)


def matched(pair: Sequence[nn.Module], description: Blueprint, options: MatchOptions) -> tuple[list[nn.Module], float]:
    """Twins of both models in one basis, the last one's, and their distance."""
    described, gauges = gauged([model.state_dict() for model in pair], description, options)
    states = [gauge.apply(model.state_dict()) for gauge, model in zip(gauges, pair, strict=True)]
    alignments = in_one_basis(Models(states, described, len(pair) - 1, None), gauges, options)
    twins = [alignment.apply(model) for alignment, model in zip(alignments, pair, strict=True)]
    first, second = (twin.state_dict() for twin in twins)
    return twins, squared_distance(first, second, described.parameters) ** 0.5


def rows(model_type: str, args: argparse.Namespace, blocks: torch.Tensor, test: list[Batch]) -> list[str]:
    """The lines of one type: unmatched, then by start without signs, or translations, and with them."""
    models = [trained(model_type, seed, blocks, args.folder) for seed in args.seeds]
    pairs = list(combinations(models, 2))
    setting = Setting(model_type, pairs, test, "loss")
    description = fusionlab.blueprint(models[0])
    whole = preset("weights")
    if any(_signs(space.group) for space in description.spaces.values()):
        variants = {"without signs": (without_signs(description), whole), "with signs": (description, whole)}
    else:
        unmoved = replace(whole, gauge=tuple(gauge for gauge in whole.gauge if gauge != "biases"))
        variants = {"without translations": (description, unmoved), "with translations": (description, whole)}
    lines = []

    def line(variant: str, twins: Sequence[Sequence[nn.Module]], distances: Sequence[float] = ()) -> None:
        barriers = [fusionlab.barrier(first, second, test, POINTS).barrier for first, second in twins]
        cells = [model_type, variant, f"{fmean(barriers):.3f}", " ".join(f"{b:.3f}" for b in barriers)]
        cells.append(" ".join(f"{d:.2f}" for d in distances))
        lines.append(f"| {' | '.join(cells)} |\n")
        print(lines[-1], end="", flush=True)

    ends = [setting.measure(model) for model in models]
    lines.append(
        f"| {model_type} | loss of the end models | {fmean(ends):.3f} | {' '.join(f'{e:.3f}' for e in ends)} | |\n"
    )
    print(lines[-1], end="", flush=True)
    line("unmatched", pairs)
    for start in args.starts:
        for variant, (used, options) in variants.items():
            found = [matched(pair, used, replace(options, start=start)) for pair in pairs]
            line(f"{start}, {variant}", [twins for twins, _ in found], [distance for _, distance in found])
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", nargs="+", choices=TYPES, default=list(TYPES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12, 13], help="every two are a pair")
    parser.add_argument("--starts", nargs="+", default=["annealed", "known"], help="of the matching")
    parser.add_argument("--folder", type=Path, default=Path("checkpoints/signs"), help="of the end models")
    parser.add_argument("--train-only", action="store_true", help="make end models, measure nothing")
    parser.add_argument("--markdown", type=Path, metavar="OUT", help="also write the table here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    train, test = text(CONFIG, STEPS * BATCH, TESTS)
    blocks = torch.cat([batch["input_ids"] for batch in train])
    blocks = blocks[: STEPS * BATCH]
    if args.train_only:
        for seed in args.seeds:
            for model_type in args.types:
                trained(model_type, seed, blocks, args.folder)
        return 0
    lines = ["| type | matching | mean barrier | of each pair | distance |\n|---|---|---:|---|---|\n"]
    for model_type in args.types:
        lines += rows(model_type, args, blocks, test)
    if args.markdown:
        with atomic_file(args.markdown, overwrite=True) as path:
            Path(path).write_text("".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
