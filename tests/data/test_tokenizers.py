"""Tokenizers that are loaded, and those that are refused before they are."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

from fusionlab.data.tokenizers import affixes, byte_tokenizer, identity, load_tokenizer, panics_raised, tokens_of
from fusionlab.errors import InputError
from tests.together import run_together


def changed(tokenizer: str, folder: Path, **changes: Any) -> str:
    """A copy of a tokenizer whose file says something else."""
    shutil.copytree(tokenizer, folder)
    path = folder / "tokenizer.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    told["model"] |= changes.pop("model", {})
    path.write_text(json.dumps(told | changes), encoding="utf-8")
    return str(folder)


def test_there_is_none() -> None:
    """The way on needs no file."""
    with pytest.raises(InputError, match=r"no/such/place: there is no such .*; tokenizer: bytes is one token a byte"):
        load_tokenizer("no/such/place")


@pytest.mark.parametrize("where", ["model", "added_tokens"])
@pytest.mark.parametrize("number", [2**24, 2**31])
def test_far_numbers_are_refused(tmp_path: Path, tokenizer: str, where: str, number: int) -> None:
    """The library would hold every number up to the largest, 9 GB for one token with the number 2^31."""
    told = json.loads((Path(tokenizer) / "tokenizer.json").read_text(encoding="utf-8"))
    if where == "model":
        values: Any = {"vocab": told["model"]["vocab"] | {"far": number}}
    else:
        values = [*told["added_tokens"], {**told["added_tokens"][0], "content": "far", "id": number}]
    with pytest.raises(InputError, match=f"gives 'far' the number {number}; expected numbers below 16,777,216"):
        load_tokenizer(changed(tokenizer, tmp_path / "far", **{where: values}))


def test_a_far_number_beside_a_near_one_is_refused(tmp_path: Path, tokenizer: str) -> None:
    """A token that stands in both lists, as special ones do."""
    told = json.loads((Path(tokenizer) / "tokenizer.json").read_text(encoding="utf-8"))
    special = told["added_tokens"][0]["content"]
    path = changed(tokenizer, tmp_path / "far", model={"vocab": told["model"]["vocab"] | {special: 2**31}})
    with pytest.raises(InputError, match="the number 2147483648"):
        load_tokenizer(path)


def test_a_gap_in_the_numbers_is_no_fault(tmp_path: Path, tokenizer: str) -> None:
    """Vocabularies are padded to round sizes."""
    vocabulary = json.loads((Path(tokenizer) / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    path = changed(tokenizer, tmp_path / "gap", model={"vocab": vocabulary | {"gap": 5000}})
    assert load_tokenizer(path).get_vocab()["gap"] == 5000


@pytest.mark.parametrize("names", ["", "input_ids", [], ["x"], ["input_ids", None], {"x": 1}])
def test_names_of_inputs_are_a_list_with_tokens_in_it(tmp_path: Path, tokenizer: str, names: object) -> None:
    """What a batch is made of: nothing else than the file says which of the tokenizer's outputs those are."""
    shutil.copytree(tokenizer, tmp_path / "odd")
    path = tmp_path / "odd" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"model_input_names": names}))
    with pytest.raises(
        InputError, match=r"odd: the tokenizer's model_input_names is .*; expected a list with input_ids in it"
    ):
        load_tokenizer(str(tmp_path / "odd"))


def test_a_tokenizer_without_any_special_token_is_refused(tmp_path: Path, tokenizer: str) -> None:
    """Batches could not be padded."""
    shutil.copytree(tokenizer, tmp_path / "bare")
    (tmp_path / "bare" / "tokenizer_config.json").write_text("{}")
    (tmp_path / "bare" / "special_tokens_map.json").unlink(missing_ok=True)
    with pytest.raises(InputError, match="bare: its tokenizer has no token to pad with"):
        load_tokenizer(str(tmp_path / "bare"))


def test_special_tokens_stand_around_a_text(tokenizer: str) -> None:
    """A tokenizer whose template leaves the text out has none before or after it."""
    loaded: Any = load_tokenizer(tokenizer)
    before, after = affixes(loaded)
    assert (before, after) == ([loaded.cls_token_id], [loaded.sep_token_id])
    loaded.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] [SEP]", pair="[CLS] $A [SEP] $B", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    with pytest.raises(InputError, match="has no tokens of a text between its special ones"):
        affixes(loaded)


def test_a_panic_of_the_library_is_a_refusal(tmp_path: Path, tokenizer: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A template that names a token that it does not describe; the pages that Rust prints about it are not shown."""
    told = json.loads((Path(tokenizer) / "tokenizer.json").read_text(encoding="utf-8"))
    post = told["post_processor"]
    post["single"][0]["SpecialToken"]["id"] = "x"
    damaged = load_tokenizer(changed(tokenizer, tmp_path / "damaged", post_processor=post))
    with pytest.raises(InputError, match=r"the tokenizer .*damaged cannot be used \(.+\); expected another"):
        tokens_of(damaged, ["a text"])
    print("said afterwards", file=sys.stderr)
    assert capfd.readouterr().err == "said afterwards\n"


def test_other_errors_pass_as_they_are(tokenizer: str) -> None:
    """A call that nobody should make is no fault of the tokenizer."""
    with pytest.raises(TypeError), panics_raised():
        raise TypeError("wrong")
    with pytest.raises(ValueError, match="must be"):
        tokens_of(load_tokenizer(tokenizer), 3)


def test_tokenizers_that_cut_or_name_otherwise_are_no_equals() -> None:
    """With the same words: the side that is cut, the inputs that a model takes, and which token ends a text."""
    found = [byte_tokenizer() for _ in range(4)]
    assert identity(found[0]) == identity(found[1])
    found[1].truncation_side = "left"
    found[2].model_input_names = ["input_ids"]
    found[3].eos_token = "<mask>"
    assert len({identity(one) for one in found}) == 4


def test_a_process_without_standard_error() -> None:
    """As a service may be started."""
    assert run_together(tokens_without_standard_error, byte_tokenizer(), count=1) == [0]


def tokens_without_standard_error(rank: int, count: int, loaded: Any) -> None:
    os.close(2)
    sys.stderr = None
    assert tokens_of(loaded, "a")["input_ids"] == loaded("a")["input_ids"]
