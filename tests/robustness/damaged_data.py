"""Damaged data sets: tables of texts, CoNLL files, images."""

import io
import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.robustness import raw_bytes
from tests.robustness.cases import OUTPUT, Case, Place, any_json, kind, nested

LONG = 10_000_000
FIELDS = ("text", "label", "split")


def _case(place: Place, path: str, must_refuse: bool = False) -> Case:
    """A command that reads a data set."""
    kinds = {".conll": "NER", ".png": "Images"}
    name = "Images" if "image" in path else kinds.get(Path(path).suffix, "TextClassification")
    model = "a" if name == "Images" else "bert_a"
    place.copy(model)
    data = ["--data", f"fusionlab.data.{name}", "--data.path", path]
    if name == "Images":
        data += ["--data.channels", "1", "--data.split_column", "split"]
    elif name == "NER":
        place.copy("data/text.csv")
        data += ["--data.tokenizer", model, "--data.test_size", "4", "--data.val_split", "null"]
        data += ["--data.test_split", "null"]
    else:
        data += ["--data.tokenizer", model, "--data.split_column", "split"]
    if name == "NER" or place.draw.random() < 0.7:
        return Case(["gather", model, *data, "--output", OUTPUT], None, must_refuse)
    place.copy(model[:-1] + "b")
    pair = [model, model[:-1] + "b"]
    return Case(["barrier", *pair, *data, "--points", "3", "--match", "none", "--output", OUTPUT], None, must_refuse)


def _table(place: Place) -> tuple[str, list[dict[str, Any]]]:
    """A kind of file, and the rows of a table."""
    lines = (place.sound / "data" / "text.jsonl").read_text().splitlines()
    return place.draw.choice(["csv", "jsonl", "parquet"]), [json.loads(line) for line in lines]


def written_rows(place: Place, suffix: str, rows: list[dict[str, Any]]) -> str:
    """Write rows as they are, however odd; returns the path."""
    path = place.work / "data" / f"text.{suffix}"
    path.parent.mkdir(exist_ok=True)
    if suffix == "parquet":
        try:
            pq.write_table(pa.Table.from_pylist(rows), path)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            told = [{key: repr(value)[:1000] for key, value in row.items()} for row in rows]
            pq.write_table(pa.Table.from_pylist(told), path)
    elif suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8", errors="surrogatepass")
    else:
        names = list(rows[0]) if rows else list(FIELDS)
        lines = [",".join(map(str, names)), *(",".join(str(row.get(name, "")) for name in names) for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
    return f"data/{path.name}"


@kind
def data_damaged(place: Place) -> Case:
    """The bytes of a data file damaged."""
    name = place.draw.choice(["text.csv", "text.jsonl", "text.parquet", "images.parquet", "tags.conll"])
    raw_bytes.damage(place.draw, place.copy(f"data/{name}"))
    return _case(place, f"data/{name}")


@kind
def data_empty(place: Place) -> Case:
    """Nothing in a file, or a header alone, or one row."""
    suffix, rows = _table(place)
    path = written_rows(place, suffix, rows[:1])
    what = place.draw.randrange(4)
    if what == 0:
        (place.work / path).write_bytes(b"")
    elif what == 1:
        (place.work / path).write_bytes(b"\n" * place.draw.choice([1, 1000]))
    elif what == 2 and suffix == "csv":
        (place.work / path).write_text("text,label,split\n")
    elif what == 2 and suffix == "parquet":
        pq.write_table(pa.table({name: pa.array([], pa.string()) for name in FIELDS}), place.work / path)
    return _case(place, path, must_refuse=what < 2)


@kind
def data_nulls(place: Place) -> Case:
    """Nulls in some rows or all, of one column."""
    suffix, rows = _table(place)
    column = place.draw.choice(FIELDS)
    share = place.draw.choice([0.1, 1.0])
    for row in rows:
        if place.draw.random() < share:
            row[column] = None if suffix != "csv" else ""
    return _case(place, written_rows(place, suffix, rows))


@kind
def data_columns(place: Place) -> Case:
    """Columns that are missing, under other names, twice, or far too many."""
    suffix, rows = _table(place)
    column = place.draw.choice(FIELDS)
    what = place.draw.randrange(4)
    if what == 0:
        rows = [{key: value for key, value in row.items() if key != column} for row in rows]
    elif what == 1:
        rows = [{(key.upper() if key == column else key): value for key, value in row.items()} for row in rows]
    elif what == 2:
        rows = [row | {f"x{i}": i for i in range(2000)} for row in rows]
        return _case(place, written_rows(place, suffix, rows))
    else:
        path = place.work / written_rows(place, "csv", rows)
        path.write_text(path.read_text().replace("text,label,split", f"{column},{column},{column}", 1))
        return _case(place, "data/text.csv", must_refuse=True)
    return _case(place, written_rows(place, suffix, rows), must_refuse=True)


@kind
def data_labels(place: Place) -> Case:
    """Labels that are negative, too large, fractions, words, lists, or numbers beyond 64 bits."""
    suffix, rows = _table(place)
    odd = [-1, 3, 10**6, 2**62, 10**30, 0.5, "x", "", [1], {"a": 1}, True, float("nan"), None, "1"]
    value = place.draw.choice(odd)
    for row in place.draw.sample(rows, place.draw.choice([1, len(rows)])):
        row["label"] = value
    return _case(place, written_rows(place, suffix, rows))


@kind
def data_values(place: Place) -> Case:
    """Values of another type in one column."""
    suffix, rows = _table(place)
    column, value = place.draw.choice(FIELDS), any_json(place.draw)
    for row in place.draw.sample(rows, place.draw.choice([1, len(rows)])):
        row[column] = value
    return _case(place, written_rows(place, suffix, rows))


@kind
def data_encodings(place: Place) -> Case:
    """Lines of several encodings in one file, byte order marks, zeros, lone surrogates, line ends of other systems."""
    suffix, rows = _table(place)
    suffix = "csv" if suffix == "parquet" else suffix
    path = place.work / written_rows(place, suffix, rows)
    lines = path.read_bytes().splitlines(keepends=True)
    at = place.draw.randrange(1, len(lines))
    foreign = place.draw.choice([b"caf\xe9", "caf\u00e9".encode("utf-16"), b"\xff\xfe", b"\xed\xa0\x80", b"\x80" * 20])
    other: list[tuple[bytes, bool]] = [
        (b"".join([*lines[:at], lines[at].replace(b" ", b" " + foreign + b" ", 1), *lines[at + 1 :]]), True),
        (b"\xef\xbb\xbf" + b"".join(lines), False), (b"".join(lines).decode().encode("utf-16"), True),
        (b"".join([*lines[:at], b"\0\0\0\n", *lines[at:]]), False), (b"".join(lines).replace(b"\n", b"\r"), False),
        (b"".join([*lines[:at], lines[at].replace(b" ", b"\0", 1), *lines[at + 1 :]]), False),
    ]  # fmt: skip
    content, must_refuse = place.draw.choice(other)
    path.write_bytes(content)
    return _case(place, f"data/{path.name}", must_refuse)


@kind
def data_long_line(place: Place) -> Case:
    """A line of ten megabytes: one word, many words, or one cell that never closes its quotes."""
    suffix, rows = _table(place)
    if place.draw.random() < 0.2:
        word = place.draw.choice(["weight " * (LONG // 7), "x" * LONG])
        path = place.work / "data" / "tags.conll"
        path.parent.mkdir()
        line = f"{word} O\n" if place.draw.random() < 0.5 else f"{'x' * LONG} O\n"
        path.write_text((place.sound / "data" / "tags.conll").read_text() + "\n" + line)
        return _case(place, "data/tags.conll")
    way = place.draw.randrange(3)
    rows[3]["text"] = ["x" * LONG, "weight " * (LONG // 7), '"' + "x" * LONG][way]
    return _case(place, written_rows(place, suffix, rows))


@kind
def data_odd_json(place: Place) -> Case:
    """Lines of JSON that are deep, no mappings, differ in what they hold, or name a thing twice."""
    _, rows = _table(place)
    path = place.work / written_rows(place, "jsonl", rows)
    lines = path.read_text().splitlines()
    at = place.draw.randrange(len(lines))
    lines[at] = place.draw.choice([
        "[]", "null", "3", "{", "{}", '{"text": "a", "text": "b", "label": 1, "split": "train"}', nested(5000),
        nested(5000, '{"text":', "}"), '{"text": {"a": 1}, "label": {}, "split": []}', '{"label": NaN}', "'x'",
        '{"text": "\\ud83d", "label": 1, "split": "train"}', f'{{"label": {"9" * 5000}}}',
        lines[at] + lines[at], "x" * 99,
    ])  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    return _case(place, "data/text.jsonl")


@kind
def data_images(place: Place) -> Case:
    """Images that are no images, of other sizes, or that say they have a billion pixels."""
    table = pq.read_table(place.sound / "data" / "images.parquet").to_pylist()
    draw = place.draw
    row = draw.choice(table[:16])
    sound = row["image"]["bytes"]
    row["image"] = draw.choice([
        {"bytes": b"", "path": None}, {"bytes": None, "path": None}, {"bytes": b"no image", "path": None}, None,
        {"bytes": raw_bytes.cut(draw, sound), "path": None}, {"bytes": raw_bytes.flipped(draw, sound), "path": None},
        {"bytes": _bomb(draw), "path": None}, {"bytes": None, "path": "/dev/zero"},
        {"bytes": None, "path": "/etc/passwd"},
        {"bytes": None, "path": "https://example.org/x.png"}, {"bytes": None, "path": "../../outside/x.png"},
    ])  # fmt: skip
    (place.work / "data").mkdir()
    pq.write_table(pa.Table.from_pylist(table), place.work / "data" / "images.parquet")
    return _case(place, "data/images.parquet")


@kind
def data_folder(place: Place) -> Case:
    """A folder of data whose card points elsewhere, or that brings a script."""
    folder = place.work / "data"
    place.copy("data/text.csv")
    elsewhere = place.draw.choice([
        "https://example.org/x.csv", "../../outside/secret.csv", "/etc/passwd", "/dev/zero",
        "hf://datasets/example/x/x.csv",
        "zip://x::https://example.org/x.zip", "s3://example/x.csv", "**/../../**", "no-such-file.csv",
    ])  # fmt: skip
    (place.folder / "outside" / "secret.csv").write_text((place.sound / "data" / "text.csv").read_text())
    card = place.draw.choice([
        f"---\nconfigs:\n- config_name: default\n  data_files: {json.dumps(elsewhere)}\n---\n",
        f"---\nconfigs:\n- config_name: default\n  data_dir: {json.dumps(elsewhere)}\n---\n",
        "---\nconfigs: !!python/object/apply:os.system ['true']\n---\n", "---\nconfigs: [\n---\n",
        "---\ndataset_info: 3\n---\n",
    ])  # fmt: skip
    (folder / "README.md").write_text(card)
    code = f"import os\nos.mkdir({str(place.canary)!r})\n"
    if place.draw.random() < 0.3:
        (folder / "README.md").unlink()
        (folder / "text.csv").unlink()
    (folder / "data.py").write_text(code)
    return _case(place, "data")


@kind
def data_no_file(place: Place) -> Case:
    """A data set that is a device, a pipe, or not there."""
    name = place.draw.choice(["text.csv", "text.jsonl", "text.parquet", "images.parquet", "tags.conll"])
    what = raw_bytes.unreadable(place.draw, place.work / "data" / name)
    return _case(place, f"data/{name}", must_refuse=what != "folder")


def _bomb(draw: random.Random) -> bytes:
    """A PNG of a few bytes that says it has 30,000 by 30,000 pixels or more."""
    side = draw.choice([30_000, 2**31 - 1, 0])
    content = io.BytesIO(b"\x89PNG\r\n\x1a\n")
    content.seek(0, io.SEEK_END)
    rows = zlib.compress(bytes(10**6))
    for name, data in ((b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b"")):
        content.write(struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)))
    return content.getvalue()
