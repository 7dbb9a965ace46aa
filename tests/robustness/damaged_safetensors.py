"""Damaged safetensors files and their indices."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.robustness import raw_bytes
from tests.robustness.cases import Case, Place, any_json, edit_json, kind, nested
from tests.robustness.commands import over_checkpoint

MODEL = "model.safetensors"
INDEX = "model.safetensors.index.json"
HUGE = (0, 1, 7, 2**63, 2**64 - 1, 2**64 - 8, 2**40, 100_000_001, 2**31)


def _weights(place: Place) -> tuple[str, Path]:
    """A checkpoint of safetensors, and one of its weight files."""
    name = place.draw.choice(["a", "timm_a", "sharded_a", "bert_a"])
    folder = place.copy(name)
    return name, place.draw.choice(sorted(folder.glob("*.safetensors")))


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def _joined(header: str | dict[str, Any], buffer: bytes) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + buffer


def _edited(place: Place, change: Callable[[dict[str, Any], str], object], must_refuse: bool = True) -> Case:
    """A file whose header is changed at one tensor."""
    name, file = _weights(place)
    header, buffer = _split(file.read_bytes())
    tensor = place.draw.choice(sorted(set(header) - {"__metadata__"}))
    change(header, tensor)
    file.write_bytes(_joined(header, buffer))
    return over_checkpoint(place, name, must_refuse)


@kind
def weights_damaged(place: Place) -> Case:
    """Cut, flipped, overwritten, stretched, replaced."""
    name, file = _weights(place)
    raw_bytes.damage(place.draw, file)
    return over_checkpoint(place, name)


@kind
def weights_cut(place: Place) -> Case:
    """Cut anywhere: as a download that broke off."""
    name, file = _weights(place)
    file.write_bytes(raw_bytes.cut(place.draw, file.read_bytes()))
    return over_checkpoint(place, name, must_refuse=True)


@kind
def header_flipped(place: Place) -> Case:
    """Bits of the header turned over."""
    name, file = _weights(place)
    content = file.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    file.write_bytes(raw_bytes.flipped(place.draw, content, 0, 8 + size))
    return over_checkpoint(place, name)


@kind
def header_length(place: Place) -> Case:
    """A length of the header that is huge, zero, or a few bytes off."""
    name, file = _weights(place)
    content = file.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    near = [size - 1, size + 1, size + 8, len(content), len(content) - 8, len(content) - 7]
    file.write_bytes(struct.pack("<Q", place.draw.choice([*HUGE, *near])) + content[8:])
    return over_checkpoint(place, name)


@kind
def offsets(place: Place) -> Case:
    """Offsets that are negative, huge, turned round, no numbers, overlap, or leave a hole."""
    draw = place.draw

    def change(header: dict[str, Any], tensor: str) -> None:
        first, last = header[tensor]["data_offsets"]
        other = draw.choice([entry for name, entry in header.items() if name not in (tensor, "__metadata__")])
        taken = other["data_offsets"]
        header[tensor]["data_offsets"] = draw.choice([
            [-first - 4, last], [last, first], [first, 2**63], [first, 2**64], [2**40, 2**40 + last - first],
            [first + 4, last + 4], [first, last - 4], [0.5, 1.5], [str(first), str(last)], None, [], [first],
            [first, last, last], {"begin": first}, [first, first], [taken[0], taken[0] + last - first],
            [True, last + 1],
            10**400, [first - 4, last],
        ])  # fmt: skip

    return _edited(place, change)


@kind
def dtypes(place: Place) -> Case:
    """A type that there is not, or another than the bytes are of."""
    odd = ["F16", "I64", "BOOL", "F8_E4M3", "f32", "F128", "", None, 4, ["F32"], "C64", "U16", "F4", "I32", "U32"]
    return _edited(place, lambda header, tensor: header[tensor].update(dtype=place.draw.choice(odd)))


@kind
def shapes(place: Place) -> Case:
    """A shape of another size, a huge, negative or nested one."""
    odd = [
        [2**62, 4], [2**32, 2**32], [-1], [0], [0, 2**63], [1.5], ["16"], None, [[16]], {}, [2**64], [1] * 5000,
        [10**30],
    ]  # fmt: skip
    return _edited(place, lambda header, tensor: header[tensor].update(shape=place.draw.choice(odd)))


@kind
def entries(place: Place) -> Case:
    """Tensors too many or too few, under odd names, or described by something else."""
    draw = place.draw

    def change(header: dict[str, Any], tensor: str) -> None:
        what = draw.randrange(5)
        if what == 0:
            header.pop(tensor)
        elif what == 1:
            header[draw.choice(["", "../../x", "\0", "x" * 10_000, "\ud83d", "__metadata__x"])] = header.pop(tensor)
        elif what == 2:
            header[tensor] = any_json(draw)
        elif what == 3:
            header["extra"] = {"dtype": "F32", "shape": [0], "data_offsets": header[tensor]["data_offsets"][1:] * 2}
        else:
            header[tensor].pop(draw.choice(["dtype", "shape", "data_offsets"]))

    return _edited(place, change)


@kind
def metadata(place: Place) -> Case:
    """Metadata that are no mapping of text to text."""
    values = [None, [], "x", 1, {"format": 1}, {"format": None}, {"format": ["pt"]}, {"format": "tf"}, {"a": {"b": 1}}]
    return _edited(place, lambda header, _: header.update(__metadata__=place.draw.choice(values)), must_refuse=False)


@kind
def header_no_mapping(place: Place) -> Case:
    """A header that is another kind of JSON, deep, or names a tensor twice."""
    name, file = _weights(place)
    header, buffer = _split(file.read_bytes())
    tensor = next(name for name in header if name != "__metadata__")
    twice = json.dumps(header)[:-1] + f", {json.dumps(tensor)}: {json.dumps(header[tensor] | {'shape': [1]})}}}"
    texts = ["", "null", "[]", "1", '"x"', "{}", nested(100_000), nested(5000, '{"a":', "}"), "{", "\x00", twice]
    text = place.draw.choice(texts)
    file.write_bytes(_joined(text, buffer))
    return over_checkpoint(place, name, must_refuse=True)


@kind
def not_finite(place: Place) -> Case:
    """NaN or infinity in one place."""
    name, file = _weights(place)
    header, buffer = _split(file.read_bytes())
    start, stop = header[place.draw.choice(sorted(set(header) - {"__metadata__"}))]["data_offsets"]
    at = place.draw.randrange(start, stop, 4)
    value = np.float32(place.draw.choice([np.nan, np.inf, -np.inf])).tobytes()
    file.write_bytes(_joined(header, buffer[:at] + value + buffer[at + 4 :]))
    return over_checkpoint(place, name, must_refuse=True)


@kind
def foreign_weights(place: Place) -> Case:
    """The weights of another model under this one's config."""
    name, other = place.draw.sample(["a", "timm_a", "bert_a"], 2)
    place.copy(name)
    shutil.copyfile(place.sound / other / MODEL, place.work / name / MODEL)
    return over_checkpoint(place, name, must_refuse=True)


@kind
def index_leads_out(place: Place) -> Case:
    """An index that names a file outside of its folder, where there is one that would do."""
    draw = place.draw
    name = draw.choice(["sharded_a", "binsharded_a"])
    folder = place.copy(name)
    index = next(folder.glob("*.index.json"))
    shard = draw.choice(sorted(set(json.loads(index.read_text())["weight_map"].values())))
    shutil.copyfile(folder / shard, place.folder / "outside" / shard)
    (folder / "inner").mkdir()
    shutil.move(folder / shard, folder / "inner" / shard)
    where = draw.choice([
        f"../../outside/{shard}", str(place.folder / "outside" / shard), f"inner/../../../outside/{shard}",
        f"inner/{shard}", f"./inner/{shard}", "..", ".", "", "/", "/dev/zero", f"~/{shard}", f"file:///{shard}", "\0",
        "x" * 5000, f"..\\{shard}",
    ])  # fmt: skip
    edit_json(index, lambda content: content.update(
        weight_map={key: where if file == shard else file for key, file in content["weight_map"].items()}
    ))  # fmt: skip
    return over_checkpoint(place, name, must_refuse=True)


@kind
def index_contradicts(place: Place) -> Case:
    """An index whose map is of another type, names what is not there, or puts tensors into other shards."""
    draw = place.draw
    name = draw.choice(["sharded_a", "binsharded_a"])
    index = next(place.copy(name).glob("*.index.json"))

    def change(content: dict[str, Any]) -> None:
        names = list(content["weight_map"])
        one, shards = draw.choice(names), sorted(set(content["weight_map"].values()))
        what = draw.randrange(6)
        if what == 0:
            content["weight_map"] = any_json(draw)
        elif what == 1:
            content["weight_map"][one] = any_json(draw)
        elif what == 2:
            content["weight_map"][one] = next(shard for shard in shards if shard != content["weight_map"][one])
        elif what == 3:
            content["weight_map"]["no.such.tensor"] = shards[0]
        elif what == 4:
            del content["weight_map"][one]
        else:
            content["weight_map"] = dict.fromkeys(names, shards[0])

    edit_json(index, change)
    return over_checkpoint(place, name)


@kind
def index_damaged(place: Place) -> Case:
    """The bytes of an index damaged, or too deep."""
    name = place.draw.choice(["sharded_a", "binsharded_a"])
    index = next(place.copy(name).glob("*.index.json"))
    if place.draw.random() < 0.3:
        index.write_text(place.draw.choice([nested(100_000), nested(3000, '{"weight_map":', "}"), "[]", "null"]))
    else:
        raw_bytes.damage(place.draw, index)
    return over_checkpoint(place, name)


@kind
def shards_mixed_up(place: Place) -> Case:
    """One shard under another's name, or of another model."""
    name = place.draw.choice(["sharded_a", "binsharded_a"])
    folder = place.copy(name)
    shards = sorted(path for path in folder.iterdir() if path.suffix in (".safetensors", ".bin"))
    one, other = place.draw.sample(shards, 2)
    if place.draw.random() < 0.5:
        shutil.copyfile(one, other)
    else:
        one.unlink()
    return over_checkpoint(place, name, must_refuse=True)


@kind
def no_plain_file(place: Place) -> Case:
    """A device, a pipe, a socket, a folder or a dangling link where weights, index or config should be."""
    name = place.draw.choice(["a", "timm_a", "sharded_a", "bin_a", "lightning_a.ckpt"])
    path = place.copy(name)
    file = path if path.is_file() else place.draw.choice(sorted(path.iterdir()))
    raw_bytes.unreadable(place.draw, file)
    return over_checkpoint(place, name, must_refuse=file.name != "generation_config.json")
