"""Time and memory of plain merges of files, and of matching them, beside copying the bytes and beside mergekit.

``python benchmarks/streaming.py --size 1b`` makes Llamas of random bfloat16 weights in a temporary folder, merges them
in child processes, in turn, and prints medians. MERGEKIT_PYTHON names the interpreter of an environment with mergekit.
``--grow`` makes models of more layers, of larger widths and more of them instead, and prints how memory grows.
``--statistics regmean`` makes files of Gram matrices too, and fuses two models by them, a part at a time and in memory.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from safetensors.torch import save_file
from torch import Tensor

from fusionlab.statistics import Grams, LinearMap
from fusionlab.statistics.files import save
from fusionlab.streaming import open_folder
from fusionlab.streaming.classes import class_of
from fusionlab.streaming.knowing import basis_of

# Layers, width, width of feed-forward layers, heads, heads of keys and values, words.
SIZES = {
    "small": (6, 512, 1408, 8, 4, 8000),
    "200m": (12, 1024, 2816, 16, 8, 32000),
    "1b": (22, 2048, 5632, 32, 4, 32000),
    "7b": (32, 4096, 11008, 32, 32, 32000),
    # As wide, for the memory of its largest part.
    "7b-layer": (1, 4096, 11008, 32, 32, 32000),
}
# What grows, and models of it: layers, width, and how many.
GROWTH = {
    "layers": [(6, 512, 2), (24, 512, 2), (96, 512, 2)],
    "width": [(6, 512, 2), (6, 1024, 2), (6, 2048, 2)],
    "models": [(6, 512, 2), (6, 512, 4), (6, 512, 8)],
}
SHARD = 2 * 10**9
# Runs the command as it is, and tells on standard error how long bringing the files onto the disk took.
FUSIONLAB = """
import sys, time
from fusionlab.atomic import writing
from fusionlab.cli import main
sync, spent = writing.sync_tree, []
def timed(path):
    start = time.perf_counter()
    sync(path)
    spent.append(time.perf_counter() - start)
writing.sync_tree = timed
code = main(sys.argv[1:])
print(f"synced {sum(spent):.3f}", file=sys.stderr)
sys.exit(code)
"""
# The same with models held whole, as small ones are.
IN_MEMORY = f"from fusionlab.commands import match_stream\nmatch_stream.IN_MEMORY = 2**60{FUSIONLAB}"
COPY = "import shutil, sys\nshutil.copytree(*sys.argv[1:])"
START = "import torch"


@dataclass(frozen=True)
class Run:
    """One child process: seconds, those of a processor, those that synced files, and its largest memory in MiB."""

    seconds: float
    processor: float
    synced: float
    anonymous: float
    resident: float


Sizes = tuple[int, int, int, int, int, int]


def shapes(size: Sizes) -> Iterator[list[tuple[str, tuple[int, ...]]]]:
    """Names and shapes of a Llama's parameters, layer by layer."""
    layers, width, hidden, heads, kv_heads, words = size
    kv = width // heads * kv_heads
    yield [("model.embed_tokens.weight", (words, width))]
    for layer in range(layers):
        at = f"model.layers.{layer}"
        yield [
            (f"{at}.input_layernorm.weight", (width,)),
            (f"{at}.mlp.down_proj.weight", (width, hidden)),
            (f"{at}.mlp.gate_proj.weight", (hidden, width)),
            (f"{at}.mlp.up_proj.weight", (hidden, width)),
            (f"{at}.post_attention_layernorm.weight", (width,)),
            (f"{at}.self_attn.k_proj.weight", (kv, width)),
            (f"{at}.self_attn.o_proj.weight", (width, width)),
            (f"{at}.self_attn.q_proj.weight", (width, width)),
            (f"{at}.self_attn.v_proj.weight", (kv, width)),
        ]
    yield [("model.norm.weight", (width,)), ("lm_head.weight", (words, width))]


def make(folder: Path, size: Sizes, seed: int) -> None:
    """Write a random model, shard by shard."""
    layers, width, hidden, heads, kv_heads, words = size
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "hidden_act": "silu",
        "intermediate_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "vocab_size": words, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5,
        "max_position_embeddings": 2048, "tie_word_embeddings": False,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    draw = torch.Generator().manual_seed(seed)
    shards: list[dict[str, Tensor]] = [{}]
    held, places = 0, dict[str, list[str]]()

    def flush() -> None:
        file = f"part-{len(places):05}.safetensors"
        save_file(shards[0], folder / file, metadata={"format": "pt"})
        places[file] = list(shards[0])
        shards[0] = {}

    for group in shapes(size):
        for name, shape in group:
            # Any finite numbers will do, and uniform ones are quickly drawn.
            shards[0][name] = torch.empty(shape, dtype=torch.bfloat16).uniform_(-0.05, 0.05, generator=draw)
            held += shards[0][name].numel() * 2
        if held > SHARD:
            flush()
            held = 0
    flush()
    names = {
        file: f"model-{i:05}-of-{len(places):05}.safetensors" if len(places) > 1 else "model.safetensors"
        for i, file in enumerate(places, 1)
    }
    for file, name in names.items():
        (folder / file).rename(folder / name)
    if len(places) > 1:
        index = {"metadata": {}, "weight_map": {key: names[file] for file, keys in places.items() for key in keys}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def measure(folder: Path) -> None:
    """Write Gram matrices of a model, such as data could give, beside its folder."""
    model = open_folder(folder.name, folder)
    assert model is not None
    made = class_of(model)
    assert made is not None
    shared = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}
    weights = {name: one.shape for name, one in model.tensors.items() if len(one.shape) == 2 and "embed" not in name}
    maps = {n: LinearMap(".".join(shared.get(part, part) for part in n.split(".")), 1, None) for n in weights}
    matrices: dict[str, Tensor] = {}
    for name, one in maps.items():
        if one.inputs not in matrices:
            rows = torch.randn(64, weights[name][1] + 1, generator=torch.Generator().manual_seed(len(matrices)))
            matrices[one.inputs] = (rows.mT @ rows).fill_diagonal_(64)
    rows_of = dict.fromkeys(matrices, 64)
    basis = basis_of(model, made)
    found = Grams(architecture="", basis=basis, examples=1, matrices=matrices, rows=rows_of, maps=maps)
    save([found], f"{folder}.stats")


def child(line: Sequence[str]) -> Run:
    """Run a program, and look at its memory every hundredth of a second.

    Raises:
        RuntimeError: it failed.
    """
    with tempfile.TemporaryFile("w+") as told:
        start = time.perf_counter()
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=told)
        largest = {"RssAnon": 0.0, "VmHWM": 0.0}
        while True:
            for key, value in _memory(process.pid).items():
                largest[key] = max(largest[key], value)
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            time.sleep(0.01)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        told.seek(0)
        err = told.read()
    if process.returncode:
        raise RuntimeError(f"{line[:4]} ended with {process.returncode}: {err[-2000:]}")
    synced = [float(words.split()[1]) for words in err.splitlines() if words.startswith("synced ")]
    return Run(seconds, used.ru_utime + used.ru_stime, sum(synced), largest["RssAnon"], largest["VmHWM"])


def _memory(pid: int) -> dict[str, float]:
    """Anonymous memory and the largest resident memory so far, in MiB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    found = (line.split() for line in lines if line.startswith(("RssAnon", "VmHWM")))
    return {words[0].rstrip(":"): int(words[1]) / 1024 for words in found}


def programs(
    folder: Path,
    models: Sequence[Path],
    methods: Sequence[str],
    matchings: Sequence[str],
    layers: str = "all",
    by_statistics: Sequence[str] = (),
) -> dict[str, list[str]]:
    """What is run, by name; the last argument of each is the folder that it writes."""
    found = {
        "import torch": [sys.executable, "-c", START, ""],
        "copy of one model": [sys.executable, "-c", COPY, str(models[0]), ""],
    }
    for preset in matchings:
        line = [sys.executable, "-c", FUSIONLAB, "match", str(models[0]), "--anchor", str(models[1]), "--match", preset]
        found[f"fusionlab match, {preset}"] = [*line, "--layers", layers, "--output", ""]
        line = [sys.executable, "-c", FUSIONLAB, "fuse", "--ckpts", *map(str, models[:2]), "--match", preset]
        found[f"fusionlab fuse, {preset}"] = [*line, "--layers", layers, "--output", ""]
        for method in by_statistics:
            files = ["--statistics", *(f"{model}.stats" for model in models[:2])]
            more = ["--layers", layers, "--method", method, *files, "--points", "0", "--output", ""]
            found[f"fusionlab fuse, {preset}, {method} by statistics"] = [*line, *more]
            found[f"the same in memory, {preset}, {method}"] = [*line[:2], IN_MEMORY, *line[3:], *more]
    for method in methods:
        line = [sys.executable, "-c", FUSIONLAB, "merge", *map(str, models), "--method", method]
        base = ["--base", str(folder / "base")] if (folder / "base").exists() else []
        found[f"fusionlab, {method}"] = [*line, *base, "--output", ""]
    if peer := os.environ.get("MERGEKIT_PYTHON"):
        config = folder / "linear.yaml"
        sources = [{"model": str(model), "parameters": {"weight": 1 / len(models)}} for model in models]
        config.write_text(json.dumps({"merge_method": "linear", "dtype": "bfloat16", "models": sources}))
        script = [peer, "-m", "mergekit.scripts.run_yaml", str(config), "--no-copy-tokenizer"]
        found["mergekit, linear"] = [*script, ""]
    return found


def grow(place: Path | None, methods: Sequence[str]) -> None:
    """Print the memory of merges by some methods, of models that have more and more of one thing."""
    shown = " | ".join(f"`{method}`, MiB" for method in methods)
    print(f"| grows | layers | width | models | GiB of each | largest tensor, MiB | {shown} |")
    print(f"|---|{'---:|' * (5 + len(methods))}")
    known: dict[tuple[int, int, int], list[float]] = {}
    for what, rows in GROWTH.items():
        for row in rows:
            layers, width, models = row
            size = (layers, width, width * 11 // 4, width // 64, width // 128, 8000)
            counts = [math.prod(shape) for group in shapes(size) for _, shape in group]
            if row not in known:
                with tempfile.TemporaryDirectory(dir=place) as made:
                    folder, found = Path(made), list[float]()
                    for seed in range(models):
                        make(folder / str(seed), size, seed)
                    for name, line in programs(folder, [folder / str(i) for i in range(models)], methods, []).items():
                        if name.startswith("fusionlab"):
                            found.append(child([*line[:-1], str(folder / f"out {len(found)}")]).anonymous)
                known[row] = found
            memory = " | ".join(f"{one:,.0f}" for one in known[row])
            of_each, largest = sum(counts) / 2**29, max(counts) / 2**19
            print(
                f"| {what} | {layers} | {width:,} | {models} | {of_each:.2f} | {largest:.1f} | {memory} |", flush=True
            )


def main() -> None:
    """Make models, merge them in turn, print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--models", type=int, default=2)
    parser.add_argument("--methods", nargs="*", default=["simple"])
    parser.add_argument("--match", nargs="*", default=[], help="Presets that two models are matched and fused by.")
    parser.add_argument("--statistics", nargs="*", default=[], help="Methods that matched models are merged by so.")
    parser.add_argument("--layers", default="all", help="That are matched, as of fusionlab match.")
    parser.add_argument("--only", nargs="+", metavar="WORDS", help="Programs whose names hold one of these.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="Where models are made, for the time of the run.")
    parser.add_argument("--grow", action="store_true", help="How memory grows with layers, width and models.")
    arguments = parser.parse_args()
    if arguments.grow:
        grow(arguments.folder, arguments.methods)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        folder = Path(place)
        needs_base = set(arguments.methods) & {"ties", "dare", "task_arithmetic", "stock", "pcb"}
        every = [*map(str, range(arguments.models)), *(["base"] if needs_base else [])]
        for seed, model in enumerate(every):
            make(folder / model, SIZES[arguments.size], seed)
        paths = [folder / str(i) for i in range(arguments.models)]
        for path in paths[:2] if arguments.statistics else ():
            measure(path)
        gib = sum(file.stat().st_size for file in paths[0].iterdir()) / 2**30
        print(f"{arguments.models} models of {gib:.2f} GiB; {os.cpu_count()} processors; medians of {arguments.rounds}")
        lines = programs(folder, paths, arguments.methods, arguments.match, arguments.layers, arguments.statistics)
        if arguments.only:
            lines = {name: line for name, line in lines.items() if any(words in name for words in arguments.only)}
        runs: dict[str, list[Run]] = {name: [] for name in lines}
        loads = []
        for _ in range(arguments.rounds):
            for name, line in lines.items():
                os.sync()
                loads.append(os.getloadavg()[0])
                runs[name].append(child([*line[:-1], str(folder / "out")]))
                shutil.rmtree(folder / "out", ignore_errors=True)
        print(f"load of the machine when runs began: {min(loads):.1f} to {max(loads):.1f}\n")
        print("| | seconds | syncing | without | of a processor | anonymous memory, MiB | resident, MiB |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for name, several in runs.items():
            total, synced = median(r.seconds for r in several), median(r.synced for r in several)
            rest, used = median(r.seconds - r.synced for r in several), median(r.processor for r in several)
            memory = [max(r.anonymous for r in several), max(r.resident for r in several)]
            times = f"{total:.1f} | {synced:.1f} | {rest:.1f} | {used:.1f}"
            print(f"| {name} | {times} | {memory[0]:,.0f} | {memory[1]:,.0f} |")


if __name__ == "__main__":
    main()
