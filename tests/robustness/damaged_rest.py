"""Damaged tokenizers, statistics, and folders of grids that are gone on with."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from fusionlab.statistics.files import checksum
from tests.robustness import raw_bytes
from tests.robustness.cases import OUTPUT, Case, Place, any_json, edit_json, kind, nested
from tests.robustness.damaged_configs import EVIL
from tests.robustness.strict_reader import VisibleDamageError, safetensors, strict_json

STATISTICS = "a.statistics.safetensors"


def _over_tokenizer(place: Place, must_refuse: bool = False) -> Case:
    place.copy("data/text.csv")
    line = ["gather", "bert_a", "--data", "fusionlab.data.TextClassification", "--data.path", "data/text.csv"]
    line += ["--data.tokenizer", "bert_a", "--data.split_column", "split", "--output", OUTPUT]
    return Case(line, None, must_refuse)


@kind
def tokenizer_damaged(place: Place) -> Case:
    """The bytes of a tokenizer's files damaged."""
    folder = place.copy("bert_a")
    raw_bytes.damage(place.draw, folder / place.draw.choice(["tokenizer.json", "tokenizer_config.json"]))
    return _over_tokenizer(place)


@kind
def tokenizer_values(place: Place) -> Case:
    """Values of another type, tokens twice or with numbers far beyond the vocabulary, deep nesting."""
    folder = place.copy("bert_a")
    name = place.draw.choice(["tokenizer.json", "tokenizer.json", "tokenizer_config.json"])

    def change(content: dict[str, Any]) -> None:
        what = place.draw.randrange(4)
        if what == 0 or name != "tokenizer.json":
            content[place.draw.choice(sorted(content))] = any_json(place.draw)
        elif what == 1:
            vocabulary = content["model"]["vocab"]
            vocabulary[place.draw.choice(sorted(vocabulary))] = place.draw.choice(
                [2**31, 2**32 - 1, 2**40, -1, 0, None, "x"]
            )
        elif what == 2:
            content["model"] = place.draw.choice(
                [{}, {"type": "evil"}, {"type": "BPE", "vocab": {}, "merges": [["a"]]}]
            )
        else:
            content["added_tokens"] = [{"id": 2**31, "content": "x"}, {"content": 3}, any_json(place.draw)]

    edit_json(folder / name, change)
    if place.draw.random() < 0.15:
        (folder / name).write_text(nested(100_000, '{"model":', "}"))
    return _over_tokenizer(place)


@kind
def tokenizer_code(place: Place) -> Case:
    """Tokenizers that bring code, or that are something else."""
    folder = place.copy("bert_a")
    for name in ("tokenization_evil", "evil", "processing_evil"):
        (folder / f"{name}.py").write_text(EVIL.format(canary=str(place.canary)))
    changes: list[dict[str, Any]] = [
        {"auto_map": {"AutoTokenizer": ["tokenization_evil.Evil", "tokenization_evil.Evil"]}},
        {"auto_map": {"AutoTokenizer": "example/x--tokenization_evil.Evil"}}, {"tokenizer_class": "Evil"},
        {"tokenizer_class": "os.system", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}},
        {"trust_remote_code": True},
        {"tokenizer_class": "T5Tokenizer"}, {"tokenizer_class": "GPT2Tokenizer"}, {"name_or_path": "example/x"},
        {"tokenizer_file": "/etc/passwd"}, {"chat_template": "{{ ''.__class__.__mro__ }}"}, {"backend": "evil"},
        {"tokenizer_file": "https://example.org/x.json"}, {"fix_mistral_regex": True},
        {"transformers_version": "4.0.0"},
    ]  # fmt: skip
    edit_json(folder / "tokenizer_config.json", lambda content: content.update(place.draw.choice(changes)))
    if place.draw.random() < 0.3:
        (folder / "tokenizer.json").unlink()
    return _over_tokenizer(place)


@kind
def tokenizer_no_file(place: Place) -> Case:
    """Devices, pipes and links that lead nowhere among a tokenizer's files; or none at all."""
    folder = place.copy("bert_a")
    if place.draw.random() < 0.2:
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer_config.json").unlink()
    else:
        names = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"]
        raw_bytes.unreadable(place.draw, folder / place.draw.choice(names))
    return _over_tokenizer(place)


def _over_statistics(place: Place, must_refuse: bool = False) -> Case:
    """A merge that needs the statistics of two models, of which one file was damaged."""
    place.copy("a", "b", "b.statistics.safetensors")
    method = place.draw.choice(["fisher", "regmean", "activations"])
    line = ["merge", "a", "b", "--method", method, "--statistics", STATISTICS, "b.statistics.safetensors"]
    if method == "activations":
        line = ["merge", "a", "b", "--statistics", STATISTICS]
    sound = place.sound / STATISTICS

    def judge(work: Any) -> str:
        try:
            found, wanted = safetensors(work / STATISTICS), safetensors(sound)
        except VisibleDamageError as error:
            return f"a strict reader refuses the statistics: {error}"
        same = found.keys() == wanted.keys() and all(found[n].shape == wanted[n].shape for n in wanted)
        return "" if same else "statistics of other names or shapes"

    return Case([*line, "--output", OUTPUT], judge, must_refuse)


@kind
def statistics_damaged(place: Place) -> Case:
    """The bytes of a file of statistics damaged."""
    raw_bytes.damage(place.draw, place.copy(STATISTICS))
    return _over_statistics(place)


@kind
def statistics_header(place: Place) -> Case:
    """Types, shapes and offsets that are wrong, or numbers that are not finite."""
    path = place.copy(STATISTICS)
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header, buffer = strict_json(content[8 : 8 + size]), bytearray(content[8 + size :])
    name = place.draw.choice(sorted(set(header) - {"__metadata__"}))
    what = place.draw.randrange(4)
    if what == 0:
        start = header[name]["data_offsets"][0]
        buffer[start : start + 4] = struct.pack("<f", place.draw.choice([float("nan"), float("inf")]))
    elif what == 1:
        header[name]["shape"] = place.draw.choice([[2**62, 4], [-1], [0], [1], []])
    elif what == 2:
        header[name]["data_offsets"] = place.draw.choice([[0, 4], [-4, 4], [0, 2**63]])
    else:
        header[place.draw.choice(["gram/matrices/none", "evil", "fisher/diagonal/../x"])] = header.pop(name)
    text = strict_dump(header)
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(buffer))
    if what in (0, 3) and place.draw.random() < 0.5:
        _seal(path)
    return _over_statistics(place, must_refuse=True)


@kind
def statistics_described(place: Place) -> Case:
    """The description inside damaged: other types, kinds, versions, models; deep; missing."""
    path = place.copy(STATISTICS)
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = strict_json(content[8 : 8 + size])
    described = json.loads(header["__metadata__"]["statistics"])
    draw = place.draw
    kinds = sorted(described)
    what = draw.randrange(6)
    if what == 0:
        described[draw.choice(kinds)] = any_json(draw)
    elif what == 1:
        one = described[draw.choice(kinds)]["fields"]
        one[draw.choice(sorted(one))] = any_json(draw)
    elif what == 2:
        described["evil"] = described.pop(draw.choice(kinds))
    elif what == 3:
        one = described[draw.choice(kinds)]
        one["shared"] = any_json(draw)
    elif what == 4:
        one = described[draw.choice(kinds)]["fields"]
        one.pop(draw.choice(sorted(one)))
    text = json.dumps(described) if what < 5 else draw.choice([nested(100_000), "", "null", "[]", '"x"', "{}"])
    header["__metadata__"]["statistics"] = text
    if draw.random() < 0.1:
        header["__metadata__"]["format"] = draw.choice(["fusionlab statistics 99", "", "pt"])
    dumped = strict_dump(header)
    path.write_bytes(struct.pack("<Q", len(dumped)) + dumped + content[8 + size :])
    if draw.random() < 0.7:
        _seal(path)
    return _over_statistics(place)


def _seal(path: Path) -> None:
    """Make the checksum of damaged statistics fit, as somebody could who means harm."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = strict_json(content[8 : 8 + size])
    metadata = header["__metadata__"]
    metadata["checksum"] = checksum(metadata["statistics"], load_file(path))
    text = strict_dump(header)
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])


@kind
def statistics_other_file(place: Place) -> Case:
    """A model's weights, another model's statistics, a device or a pipe in their place."""
    path = place.work / STATISTICS
    what = place.draw.randrange(3)
    if what == 0:
        shutil.copyfile(place.sound / "a" / "model.safetensors", path)
    elif what == 1:
        shutil.copyfile(place.sound / "b.statistics.safetensors", path)
    else:
        raw_bytes.unreadable(place.draw, path)
    # Those of the other model are not damaged; a method that needs both is told by the models that they lack one.
    return _over_statistics(place, must_refuse=what != 1)


@kind
def grid_damaged(place: Place) -> Case:
    """Cells of an earlier run damaged, which is gone on with."""
    place.copy("configs/compare.yaml", "a", "b")
    folder = place.copy("grid")
    cell = place.draw.choice(sorted([*folder.rglob("*.json"), *folder.rglob("*.npz")]))
    way = place.draw.choice([0, 1, 2] if cell.suffix == ".json" else [0, 2])
    if way == 0:
        raw_bytes.damage(place.draw, cell)
    elif way == 1:
        content = json.loads(cell.read_text())
        if isinstance(content, dict):
            content[place.draw.choice(sorted(content))] = any_json(place.draw)
        cell.write_text(json.dumps(content))
    else:
        raw_bytes.unreadable(place.draw, cell)
    return Case(["compare", "--config", "configs/compare.yaml", "--output", "grid"], may_write=("grid",))


def strict_dump(header: dict[str, Any]) -> bytes:
    """A header as bytes."""
    return json.dumps(header).encode()
