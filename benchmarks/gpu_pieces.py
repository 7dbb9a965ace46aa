"""The pieces of the benchmark on a GPU: each takes some minutes, and gives numbers by name."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from auction import auction
from gpu_models import GPT2, SMALL, VITS, Training, deberta, gpt2, near, vit
from settings import batches, ready
from step_times import descents, seconds_a_step
from torch import Tensor, nn

import fusionlab
from fusionlab.matching.align import align_states
from fusionlab.matching.assignment import assignment
from fusionlab.matching.presets import preset
from fusionlab.matching.weights import squared_distance
from fusionlab.matching.workplace import Workplace
from fusionlab.models import untie
from fusionlab.probes import probes
from fusionlab.symmetry import blueprint
from fusionlab.trainers import device_of

# From the arguments to what was measured; None for a piece that is not finished and goes on when it is called again.
Piece = Callable[[argparse.Namespace], dict[str, Any] | None]
PAIRS = ("near", "independent")
SEEDS = (0, 1)
PROCESSOR = torch.device("cpu")


class MissingError(Exception):
    """Files that a piece needs were not named."""


def pieces() -> dict[str, Piece]:
    """All pieces by name, in the order to run them in."""
    found: dict[str, Piece] = {"device": device}
    found |= {f"matching deberta-v3-large, {pair}": partial(matching, pair=pair) for pair in PAIRS}
    found["decompositions"] = decompositions
    found |= {f"assignments, {pair}": partial(assignments, pair=pair) for pair in PAIRS}
    found |= {f"steps {name}": partial(steps, name=name) for name in (*VITS, *GPT2)}
    for name in (*VITS, *GPT2):
        found |= {f"training {name}, seed {seed}": partial(training, name=name, seed=seed) for seed in SEEDS}
        for way in ("tied", "untied") if name in GPT2 else ("as trained",):
            found |= {f"barrier {name}, {way}, {row}": partial(barrier, name=name, way=way, row=row) for row in ROWS}
    return found


# --- matching ---------------------------------------------------------------------------------------------------------


def matching(args: argparse.Namespace, pair: str) -> dict[str, Any]:
    """The paper's matching of all layers, feed-forward included, and all spaces' in every gauge; models lie there."""
    torch.manual_seed(0)
    anchor = deberta(args.small)
    described = blueprint(anchor)
    if pair == "near":
        source: dict[str, Tensor] = near(anchor, described)
    else:
        torch.manual_seed(1)
        source = deberta(args.small).state_dict()
    found: dict[str, Any] = {"parameters": sum(p.numel() for p in anchor.parameters())}
    given = device_of(args.accelerator) or PROCESSOR
    for where in dict.fromkeys((given, PROCESSOR)):
        place = Workplace(where if where.type == "cuda" else None)
        states = [place.brought(state) for state in (source, anchor.state_dict())]
        on = "device" if where == given else "processor"
        for name in ("paper", "weights") if on == "device" else ("paper",):
            options = preset(name)
            times = []
            for _ in range(args.runs + 1 if on == "device" else 1):
                _settled(where)
                start = time.perf_counter()
                alignments = align_states(states, described, options, anchor=1, place=place)
                _settled(where)
                times.append(time.perf_counter() - start)
            # The first run loads libraries of the device.
            found[f"{name}, {on}, seconds"] = statistics.median(times[1:] or times)
            moved = [place.found(one).apply(state) for one, state in zip(alignments, states, strict=True)]
            found[f"{name}, {on}, distance"] = squared_distance(moved[0], moved[1], list(described.parameters)) ** 0.5
        if where.type == "cuda":
            found["device memory, MiB"] = torch.cuda.max_memory_allocated(where) / 2**20
    return found


def decompositions(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of the decompositions of such a model: of all heads at once, and of one stream, in float64."""
    count, size, width = (4, 4, 16) if args.small else (2 * 24 * 16, 64, 1024)
    generator = torch.Generator().manual_seed(0)
    heads = torch.randn(count, size, size, generator=generator, dtype=torch.float64)
    stream = torch.randn(width, width, generator=generator, dtype=torch.float64)
    found: dict[str, Any] = {"heads": count, "of": size, "stream": width}
    given = device_of(args.accelerator) or PROCESSOR
    for where in dict.fromkeys((given, PROCESSOR)):
        on = "device" if where == given else "processor"
        there = [heads.to(where), stream.to(where)]
        for name, tensor in zip(("heads", "stream"), there, strict=True):
            found[f"svd of {name}, {on}, seconds"] = _seconds(partial(torch.linalg.svd, tensor), where, args.runs)
            square = tensor @ tensor.mT
            found[f"eigh of {name}, {on}, seconds"] = _seconds(partial(torch.linalg.eigh, square), where, args.runs)
    return found


def assignments(args: argparse.Namespace, pair: str) -> dict[str, Any]:
    """One layer's assignment: on the processor, the correlation fetched, and by an auction on the device."""
    units, width = (64, 16) if args.small else (4096, 1024)
    where = device_of(args.accelerator) or PROCESSOR
    generator = torch.Generator().manual_seed(0)
    anchor = torch.randn(units, 2 * width, generator=generator)
    noise = torch.randn(units, 2 * width, generator=generator)
    # Near ones are told apart by more than the largest entry of each row.
    source = anchor[torch.randperm(units, generator=generator)] + 2 * noise if pair == "near" else noise
    table = (anchor @ source.T).to(where)
    ours = _seconds(lambda: assignment(table), where, args.runs)
    order = assignment(table).to(where)
    rows = torch.arange(units, device=where)
    reached = float(table[rows, order].double().sum())
    found: dict[str, Any] = {"units": units, "processor, seconds": ours, "processor, sum": reached}
    for share in (1e-4, 1e-6):
        start = time.perf_counter()
        try:
            column, rounds = auction(table, share, args.rounds)
        except RuntimeError as error:
            found[f"auction {share:g}, device"] = str(error)
            continue
        _settled(where)
        found[f"auction {share:g}, device, seconds"] = time.perf_counter() - start
        found[f"auction {share:g}, device, rounds"] = rounds
        found[f"auction {share:g}, device, sum less"] = reached - float(table[rows, column].double().sum())
    return found


# --- learning ---------------------------------------------------------------------------------------------------------


def steps(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Seconds of a step of learned matching and of one of distillation, on the same batches of synthetic inputs."""
    make: Any = vit if name in VITS else gpt2
    sizes = SMALL if args.small else {**VITS, **GPT2}[name]
    torch.manual_seed(0)
    models = [make(sizes).eval(), make(sizes).eval()]
    size = 8 if args.small else 128 if name in VITS else 16
    inputs = _synthetic(models, 4 * size, size)
    less, more = (1, 3) if args.small else (10, 40)
    trainer = {"accelerator": args.accelerator, "devices": 1, "precision": args.precision}
    found: dict[str, Any] = {"batch": size, "parameters": sum(p.numel() for p in models[0].parameters())}
    for label, descend in descents(models, inputs, size, trainer).items():
        descend(less)
        found[f"{label}, seconds a step"] = seconds_a_step(descend, less, more)
    return found


# --- barriers ---------------------------------------------------------------------------------------------------------

ROWS: dict[str, dict[str, Any]] = {
    "plain mean": {"preset": "none"},
    "the paper's": {"preset": "paper"},
    "weights": {"preset": "weights"},
    "activations": {"preset": "activations"},
    "learned": {"preset": "learned"},
}


def training(args: argparse.Namespace, name: str, seed: int) -> dict[str, Any] | None:
    """An end model, trained for some minutes in each call."""
    start = time.perf_counter()
    if not _training(args, name, seed).goes_on(_folder(args, name, seed), args.accelerator, args.minutes):
        return None
    return {"last call, seconds": time.perf_counter() - start}


def barrier(args: argparse.Namespace, name: str, way: str, row: str) -> dict[str, Any]:
    """The barrier of the loss between two end models, test data, after one kind of matching on training inputs.

    Raises:
        MissingError: the end models are not trained yet.
    """
    pair = []
    for seed in SEEDS:
        if not (_folder(args, name, seed) / "model").exists():
            raise MissingError(f"the end model of seed {seed} is not trained yet")
        pair.append(_training(args, name, seed).load(_folder(args, name, seed)))
    if way == "untied":
        pair = [untie(model) for model in pair]
    data = _training(args, name, 0).module()
    ready(data)
    count, tests = (16, 16) if args.small else (4000, 1000)
    inputs, test = batches(data.train_dataloader(), count), batches(data.test_dataloader(), tests, labels=True)
    trainer = {"accelerator": args.accelerator, "devices": 1, "precision": args.precision}
    how = dict(ROWS[row])
    if row in ("activations", "learned"):
        how["data"] = inputs
    if row == "learned":
        size = 128 if name in VITS else 16
        how |= {"steps": 2, "batch_size": 8} if args.small else {"steps": 900, "batch_size": size}
    start = time.perf_counter()
    twins: list[nn.Module] = fusionlab.align(pair, anchor=1, trainer=trainer, **how)
    seconds = time.perf_counter() - start
    where = device_of(args.accelerator) or PROCESSOR
    there = [{key: value.to(where) for key, value in batch.items()} for batch in test]
    curve = fusionlab.barrier(twins[1].to(where), twins[0].to(where), there, points=3 if args.small else args.points)
    middle = len(curve.loss) // 2
    return {
        "barrier": curve.barrier, "loss half way": curve.loss[middle], "metric half way": curve.metric[middle],
        "ends": (curve.loss[0] + curve.loss[-1]) / 2, "seconds": seconds, "points": len(curve.loss),
    }  # fmt: skip


def device(args: argparse.Namespace) -> dict[str, Any]:
    """What the numbers are of."""
    where = device_of(args.accelerator)
    if where is None:
        return {"name": "processor", "threads": torch.get_num_threads(), "torch": torch.__version__}
    memory = torch.cuda.get_device_properties(where).total_memory / 2**30
    return {"name": torch.cuda.get_device_name(where), "GiB": memory, "torch": torch.__version__}


def _training(args: argparse.Namespace, name: str, seed: int) -> Training:
    """The end model of a seed.

    Raises:
        MissingError: the files that it is trained on were not named.
    """
    is_text = name in GPT2
    option = "shakespeare" if is_text else "cifar"
    path = getattr(args, option)
    if path is None or not Path(path).exists():
        raise MissingError(f"no --{option}" if path is None else f"--{option} {path} does not exist")
    sizes = SMALL if args.small else {**VITS, **GPT2}[name]
    data: dict[str, Any] = {"path": str(path)}
    if args.small:
        data |= {"limit": 32, "batch_size": 8}
    if not is_text:
        columns = {"image_column": args.image_column, "label_column": "label", "split_column": args.split_column}
        data |= {**columns, "val_size": 8 if args.small else 5000}
    config = "gpt2_shakespeare.yaml" if is_text else "vit_cifar10.yaml"
    return Training(config, sizes, data, args.epochs or (1 if args.small else None), seed)


def _folder(args: argparse.Namespace, name: str, seed: int) -> Path:
    return Path(args.folder) / f"{name}_seed{seed}"


def _synthetic(models: list[nn.Module], count: int, size: int) -> list[dict[str, Tensor]]:
    """Batches of random inputs."""
    drawn: Iterator[dict[str, Tensor]] = iter(probes(models, count))
    whole: dict[str, list[Tensor]] = {}
    for batch in drawn:
        for name, value in batch.items():
            whole.setdefault(name, []).append(value)
    joined = {name: torch.cat(values) for name, values in whole.items()}
    return [{name: value[i : i + size] for name, value in joined.items()} for i in range(0, count, size)]


def _seconds(work: Callable[[], object], where: torch.device, runs: int) -> float:
    """The median of some runs after a first one."""
    times = []
    for _ in range(runs + 1):
        _settled(where)
        start = time.perf_counter()
        work()
        _settled(where)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def _settled(where: torch.device) -> None:
    if where.type == "cuda":
        torch.cuda.synchronize(where)
