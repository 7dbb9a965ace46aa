"""Which of transformers' model types can be matched as they come: the default config of each, without memory.

    python benchmarks/reach.py                     (all types: an hour of one processor)
    python benchmarks/reach.py --types llama bert  (some)

One line for each type: the class that people fine-tune first, its parameters, the share of them that some space moves,
seconds of the processor; or the first words of why not. Default configs are often of the published sizes, and now and
then no model at all: what cannot be built is counted apart. Each type runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
import warnings
from collections import Counter
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from fusionlab.symmetry.infer.models import inferred

# Of the classes of a type the first that exists is tried.
TASKS = (
    *("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SEQUENCE_CLASSIFICATION", "IMAGE_CLASSIFICATION"),
    *("CTC", "AUDIO_CLASSIFICATION", "SPEECH_SEQ_2_SEQ"),
)
SECONDS = 300


def class_of(model_type: str) -> str | None:
    """The name of the class to try; None where a type has none of these."""
    for table in (*(f"MODEL_FOR_{task}_MAPPING_NAMES" for task in TASKS), "MODEL_MAPPING_NAMES"):
        if names := getattr(modeling_auto, table).get(model_type):
            return names if isinstance(names, str) else names[0]
    return None


def tried(model_type: str, class_name: str) -> dict[str, Any]:
    """What became of one type."""
    try:
        with torch.device("meta"):
            model = getattr(transformers, class_name)(CONFIG_MAPPING[model_type]())
    except Exception as error:  # whatever a default config lacks
        return {"outcome": "not built", "why": f"{type(error).__name__}: {error}"}
    sizes = {name: tensor.numel() for name, tensor in model.state_dict().items()}
    start = time.process_time()
    try:
        found = inferred(model)
    except Exception as error:
        return {"outcome": "refused", "why": str(error), "parameters": sum(sizes.values())}
    untouched = set(found.untouched())
    moved = sum(size for name, size in sizes.items() if name not in untouched) / sum(sizes.values())
    seconds = round(time.process_time() - start, 1)
    return {"outcome": "inferred", "parameters": sum(sizes.values()), "moved": moved, "seconds": seconds}


def in_a_process(model_type: str, class_name: str) -> dict[str, Any]:
    """The same in a process of its own, which may end in any way."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(SECONDS)
        os.write(writing, json.dumps(tried(model_type, class_name)).encode()[:60_000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(told) if told else {"outcome": "refused", "why": f"ended by signal {status} in {SECONDS} s"}


def main() -> None:
    """Print one line for each type, and how many there are of each outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", nargs="*", default=list(CONFIG_MAPPING), help="model types (all)")
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    # Blueprints of earlier runs would hide what inference takes.
    os.environ["FUSIONLAB_CACHE"] = os.devnull
    counts: Counter[str] = Counter()
    print("| type | class | parameters | moved | s |\n|---|---|---:|---:|---:|")
    for model_type in parser.parse_args().types:
        if (class_name := class_of(model_type)) is None:
            continue
        row = in_a_process(model_type, class_name)
        counts[row["outcome"]] += 1
        parameters = f"{row['parameters']:,}" if "parameters" in row else ""
        if row["outcome"] == "inferred":
            print(f"| {model_type} | {class_name} | {parameters} | {row['moved']:.1%} | {row['seconds']} |", flush=True)
        else:
            why = " ".join(row["why"].split())[:160].replace("|", "/")
            print(f"| {model_type} | {class_name} | {parameters} | {row['outcome']}: {why} | |", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))


if __name__ == "__main__":
    main()
