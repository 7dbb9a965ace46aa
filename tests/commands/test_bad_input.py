"""Bad input: exit code 2, one sentence that names what is wrong and what was expected, and nothing written."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.data import DataLoader

from fusionlab import checkpoints
from fusionlab.data import Digits
from tests.commands.conftest import Command
from tests.commands.small import vit

State = dict[str, Tensor]


class RunsCode:
    """A pickle of this makes a folder when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


class WithoutTest(Digits):
    """Data to train on only."""

    name = "half"

    def test_dataloader(self) -> list:  # type: ignore[override]
        return []


class EmptyTest(Digits):
    """A test split without a single image."""

    name = "hollow"

    def test_dataloader(self) -> DataLoader:
        return DataLoader([])  # type: ignore[arg-type]


class Unlabelled(Digits):
    """Images alone."""

    name = "bare"

    def test_dataloader(self) -> DataLoader:
        return DataLoader([{"pixel_values": torch.zeros(1, 8, 8)}])  # type: ignore[arg-type]


def edited(source: Path, folder: Path, edit: Callable[[State], object]) -> None:
    shutil.copytree(source, folder)
    state = load_file(folder / "model.safetensors")
    edit(state)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture(scope="module")
def broken(ckpts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of checkpoints and configs of which most are wrong in one way each."""
    folder = tmp_path_factory.mktemp("broken")
    for name in ("a", "b", "c", "bert_a", "bert_b"):
        shutil.copytree(ckpts / name, folder / name)
    for name in "ab":
        shutil.copy(ckpts / f"lightning_{name}.ckpt", folder)
    checkpoints.save(vit(1, hidden_size=24), folder / "wide")
    checkpoints.save(vit(1, num_hidden_layers=3), folder / "deep")
    checkpoints.save(vit(1, num_attention_heads=4), folder / "heads")
    for seed in range(2):
        checkpoints.save(vit(seed, num_labels=3), folder / f"three_{seed}")
        checkpoints.save(vit(seed, image_size=16), folder / f"large_{seed}")
    edited(ckpts / "a", folder / "missing", lambda state: state.pop("classifier.bias"))
    edited(ckpts / "a", folder / "extra", lambda state: state.update(foo=torch.zeros(2)))
    edited(ckpts / "a", folder / "nan", lambda state: state["classifier.bias"][3].fill_(torch.nan))
    edited(ckpts / "a", folder / "inf", lambda state: state["classifier.bias"][3].fill_(torch.inf))
    edited(ckpts / "a", folder / "huge", lambda state: state["classifier.bias"].fill_(2e5))
    shutil.copytree(ckpts / "a", folder / "nested")
    (folder / "nested" / "config.json").write_text('{"a": ' * 3000 + "1" + "}" * 3000)
    shutil.copytree(ckpts / "a", folder / "cut")
    content = (ckpts / "a" / "model.safetensors").read_bytes()
    (folder / "cut" / "model.safetensors").write_bytes(content[: len(content) // 2])
    vit().config.save_pretrained(folder / "evil")
    torch.save({"state_dict": {"a": RunsCode(folder / "made")}}, folder / "evil.ckpt")
    torch.save({"a": RunsCode(folder / "made")}, folder / "evil" / "pytorch_model.bin")
    (folder / "key.yaml").write_text("ckptz: [a, b]\noutput: out\n")
    (folder / "broken.yaml").write_text("ckpts: [")
    (folder / "batch.yaml").write_text(
        "data:\n- class_path: Digits\n- class_path: Digits\n  init_args: {batch_size: 0}\n"
    )
    return folder


HERE = "tests.commands.test_bad_input"
OUT = "--output out"
# What is typed, and the words that the sentence must hold: what is wrong, and what was expected.
CASES = [
    # models that do not fit each other
    (f"merge a bert_a {OUT}", "bert_a is a BertForSequenceClassification", "a a ViTForImageClassification"),
    (f"fuse --ckpts a bert_a {OUT}", "bert_a is a BertForSequenceClassification", "expected end models of one"),
    (f"match bert_a --anchor a {OUT}", "bert_a", "expected end models of one architecture"),
    ("barrier a bert_a --data Digits", "bert_a", "expected end models of one architecture"),
    (f"merge a wide {OUT}", "'classifier.weight' has shape 10 x 24 in wide", "expected shape 10 x 16"),
    (f"grow deep --like a {OUT}", "'vit.layers' has 3 layers and would have 2", "expected a larger model"),
    (f"grow a --like bert_a {OUT}", "the larger one a BertForSequenceClassification", "expected one class"),
    (f"merge deep a {OUT}", "'vit.layers.2.", "is missing in a; expected shape"),
    (f"match heads --anchor a {OUT}", "heads", "configs that differ in num_attention_heads"),
    (f"merge a heads {OUT}", "heads", "configs that differ in num_attention_heads"),
    (f"merge a b three_0 {OUT}", "'classifier.bias' has shape 3 in three_0", "expected shape 10 as in a"),
    # damaged files
    (f"fuse --ckpts a missing {OUT}", "missing/model.safetensors lacks the parameter classifier.bias", "needs"),
    (f"merge extra a {OUT}", "extra/model.safetensors has the parameter foo", "does not know"),
    (f"match a b --anchor c --match weights --towards mean {OUT}", "towards is 'mean'", "expected fuse, which matches"),
    (f"match nan --anchor a {OUT}", "nan: parameter classifier.bias", "finite numbers were expected"),
    (f"fuse --ckpts inf a {OUT}", "inf: parameter classifier.bias", "finite numbers were expected"),
    ("inspect nan", "nan: parameter classifier.bias", "finite numbers were expected"),
    (f"merge a cut {OUT}", "cut/model.safetensors", "truncated"),
    (f"match evil.ckpt --anchor a {OUT}", "evil.ckpt", "other than tensors and plain data"),
    (f"merge a evil {OUT}", "evil/pytorch_model.bin", "other than tensors and plain data"),
    # names that do not exist
    (
        f"merge a b --method fisher {OUT}",
        "the Fisher information of each model",
        "statistics that `fusionlab gather` wrote",
    ),
    (f"merge a b --method simple,slerp {OUT}", "simple, slerp", "expected one"),
    (f"merge a b --method task_arithmetic {OUT}", "'task_arithmetic'", "expected one"),
    (f"merge a b --probes real {OUT}", "'real'", "expected 'synthetic', a data module, or one of"),
    (f"merge a b --statistics a/config.json {OUT}", "a/config.json", "expected"),
    (f"fuse --ckpts a b --samples 0 --data Digits {OUT}", "samples is 0", "expected at least 1"),
    (f"fuse --ckpts a b --match weights --steps 3 {OUT}", "'steps'", "an option of learned"),
    (f"fuse --ckpts a b --match learned --steps 0 {OUT}", "steps is 0", "expected at least 1"),
    (f"fuse --ckpts a b --match learned --batch_size 0 {OUT}", "batch_size is 0", "expected at least 1"),
    (
        f"fuse --ckpts a b --match learned --learning_rate 0 {OUT}",
        "learning_rate is 0",
        "expected a finite number above 0",
    ),
    (f"fuse --ckpts a b --polish 0 {OUT}", "steps is 0", "expected at least 1"),
    (f"fuse --ckpts a b --method nope {OUT}", "'nope'", "expected one of"),
    (f"fuse --ckpts a b --method simple,soup,simple {OUT}", "'simple' twice", "expected each merge method once"),
    (f"merge a b --hyperparameters.alpha 0.5 {OUT}", "'alpha'", "expected none"),
    (f"fuse --ckpts a b --match nope {OUT}", "'nope'", "expected one of none, paper, weights"),
    (f"fuse --ckpts a b --match learn {OUT}", "'learn'", "expected one of none, paper, weights"),
    (f"match a --anchor b --match active {OUT}", "'active'", "expected one of none, paper, weights"),
    (f"fuse --ckpts a b --spaces qk {OUT}", "'qk'", "expected some of all, residual, heads, attention"),
    (f"match a --anchor b --layers some {OUT}", "'some'", "expected all, a layer such as 3"),
    (f"fuse --ckpts a b --layers 7 {OUT}", "'7'", "expected layers from 0 to 1"),
    (f"fuse --ckpts a b --layers first:3 {OUT}", "'first:3'", "K up to 2"),
    (f"fuse --ckpts a b --rescale on {OUT}", "rescale is 'on'", "expected one of off, sequential, joint"),
    (f"fuse --ckpts a b --gauge fold {OUT}", "gauge names 'fold'", "or some of folded, biases, balanced"),
    (f"fuse --ckpts a b --sweeps 0 {OUT}", "sweeps is 0", "expected at least 1"),
    (f"fuse --ckpts a b --sweeps few {OUT}", "sweeps", "Expected int"),
    (f"fuse --config key.yaml {OUT}", "'ckptz' is not accepted", "expected one of the options"),
    (f"fuse --config broken.yaml {OUT}", "parsing config", "line 2"),
    (f"fuse --ckpts a b --config gone {OUT}", "no config gone", "looked through"),
    (f"fuse --ckpts a b --config kei.yaml {OUT}", "no config kei.yaml", "did you mean key.yaml"),
    (f"fuse --ckpts a b --verbosity 3 {OUT}", "--verbosity", "expected one of the options"),
    (f"merge a b --anchor 1 {OUT}", "--anchor", "expected one of the options"),
    (f"match a --anchor b --statistics s {OUT}", "--statistics", "expected one of the options"),
    ("barrier a b --data Digits --statistics s", "--statistics", "expected one of the options"),
    ("inspect a --seed 3", "--seed", "expected one of the options"),
    ("inspect a --picture x.svg", "picture is x.svg", "expected the name of a PNG file"),
    (f"fuse --ckpts a b --match learned --samples 0 {OUT}", "samples is 0", "expected at least 1"),
    (f"fuse --ckpts a b --heads own --correct {OUT}", "correct needs one head", "merged or union"),
    (f"fuse --ckpts a b --heads own --method soup {OUT}", "'soup' chooses by scores", "expected heads to be merged"),
    (f"fuse --ckpts a b --heads union --method soup {OUT}", "'soup' chooses by scores", "expected heads to be merged"),
    (f"fuse --ckpts a b --match learned --length 9 {OUT}", "length is 9, of texts", "expected it without"),
    # outputs
    ("fuse --ckpts a b --output c", "c exists already", "overwrite"),
    ("match a --anchor b --output c", "c exists already", "overwrite"),
    ("merge a b --output c", "c exists already", "overwrite"),
    ("barrier a b --data Digits --output c", "c exists already", "overwrite"),
    ("demo --epochs 1 --output c", "c exists already", "overwrite"),
    ("merge a b --output . --overwrite", ".", "may not replace the working folder"),
    ("merge a b --output a/config.json/out", "a/config.json", "expected a folder"),
    (f"match lightning_a.ckpt --anchor lightning_b.ckpt {OUT}", "out", "expected an output that ends in .ckpt"),
    ("merge lightning_a.ckpt lightning_b.ckpt --output out.pt", "out.pt", "expected an output that ends in .ckpt"),
    # numbers out of range
    (f"merge a b --weights 1 2 3 {OUT}", "weights has 3 numbers for 2 models", "expected one for each"),
    (f"fuse --ckpts a b --weights 1 {OUT}", "weights has 1 numbers for 2 models", "expected one for each"),
    (f"merge a b --weights -1 2 {OUT}", "weights are -1.0, 2.0", "expected numbers from 0 up"),
    (f"merge a b --weights 0 0 {OUT}", "weights are 0.0, 0.0", "one of them above 0"),
    (f"merge a b --weights x 1 {OUT}", "weights", "Expected float"),
    (f"fuse --ckpts a b --anchor 2 {OUT}", "anchor is 2", "index from 0 to 1"),
    (f"fuse --ckpts a b --anchor -1 {OUT}", "anchor is -1", "index from 0 to 1"),
    (f"fuse --ckpts a b --anchor best {OUT}", "anchor is 'best'", "expected 'nearest' or an index"),
    ("barrier a b --data Digits --points 2", "points is 2", "expected at least 3"),
    ("barrier a b --data Digits --points 10001", "points is 10001", "expected at most 10,000"),
    (f"fuse --ckpts a b --data Digits --points 1 {OUT}", "points is 1", "expected 0 for no lines"),
    (f"demo --epochs 0 {OUT}", "epochs is 0", "expected at least 1"),
    (f"fuse --ckpts a b --seed x {OUT}", "seed", "Expected int"),
    # before any checkpoint is read
    (f"merge gone a --max-shard-size foo {OUT}", "max_shard_size is 'foo'", "expected a size such as 5GB"),
    (f"merge gone a --dtype foo {OUT}", "dtype is 'foo'", "float32"),
    (f"merge gone a --method regmean {OUT}", "'regmean' needs Gram matrices", "expected data (--probes)"),
    (f"merge gone a --method soup {OUT}", "'soup' needs a validation set", "held out for it"),
    (f"merge gone a --method regmean_pp {OUT}", "'regmean_pp' needs inputs", "expected data (--probes;"),
    (f"merge gone a --statistics s {OUT}", "merge method 'simple' looks at none", "expected no --statistics"),
    # which checkpoints
    (f"merge a a {OUT}", "same checkpoint is named twice among a, a", "expected different ones"),
    (f"fuse --ckpts a b/../a {OUT}", "same checkpoint is named twice", "expected different ones"),
    (f"match a --anchor a/ {OUT}", "same checkpoint is named twice", "expected different ones"),
    (f"merge a {OUT}", "1 end model was given", "expected at least two"),
    (f"fuse --ckpts a {OUT}", "1 end model was given", "expected at least two"),
    (f"merge a no/such/folder/here {OUT}", "no/such/folder/here", "no such file or folder"),
    (f"match gone.ckpt --anchor a {OUT}", "gone.ckpt", "no such file or folder"),
    (f"fuse --ckpts a someone/hidden-model {OUT}", "someone/hidden-model", "Hugging Face hub"),
    (f"match {OUT}", "arguments are required", "sources, --anchor"),
    ("merge a b", "arguments are required", "--output"),
    # data
    (f"fuse --ckpts a b --data {HERE}.WithoutTest {OUT}", "'half' has no test split", "expected one"),
    (f"fuse --ckpts a b --data {HERE}.EmptyTest {OUT}", "'hollow' has no test split", "expected one"),
    (f"fuse --ckpts a b --data {HERE}.Unlabelled {OUT}", "'bare'", "expected batches of inputs and labels"),
    (f"fuse --ckpts three_0 three_1 --data Digits {OUT}", "digits", "3 classes; expected labels from 0"),
    (f"barrier three_0 three_1 --data Digits {OUT}", "digits", "3 classes; expected labels from 0 to 2"),
    (f"fuse --ckpts large_0 large_1 --data Digits {OUT}", "'digits' does not fit the models", "16*16"),
    (f"fuse --ckpts bert_a bert_b --data Digits {OUT}", "'digits' does not fit the models", "input_ids"),
    (f"fuse --ckpts a b --data Images --data.path /no/such {OUT}", "/no/such", "no such file or folder"),
    (f"fuse --ckpts a b --data Images {OUT}", "data", "required: --data.path"),
    (f"fuse --ckpts a b --data Nothing {OUT}", "no class Nothing", "expected its import path"),
    ("fuse --data.help TextClasification", "no class TextClasification", "did you mean TextClassification?"),
    (f"fuse --ckpts a b --data Digits --data.batch_size 0 {OUT}", "data.batch_size is 0", "at least 1 was expected"),
    (f"fuse --ckpts a b --config batch.yaml {OUT}", "data.batch_size is 0", "at least 1 was expected"),
    (f"fuse --ckpts a b --data Digits --data.batch 4 {OUT}", "'batch' is not accepted", "expected one of"),
    (f"fuse --ckpts a b --out_of_domain Digits --out_of_domain.classes [11] {OUT}", "classes is [11]", "from 0 to 9"),
    # where it runs
    (f"fuse --ckpts a b --accelerator abacus {OUT}", "abacus", "Available names are"),
    (f"fuse --ckpts a b --devices 0 {OUT}", "devices=0", "not a valid input"),
    (f"fuse --ckpts a b --devices 999 {OUT}", "devices is 999", "on the processors of this machine"),
    (f"fuse --ckpts a b --devices 999 --data Digits {OUT}", "devices is 999", "on the processors of this machine"),
    (f"merge a b --devices 999 {OUT}", "devices is 999", "on the processors of this machine"),
    (f"merge a b --dtype int8 {OUT}", "dtype is 'int8'", "expected one of float32, bfloat16, float16, float64"),
    (f"match a --anchor b --dtype half {OUT}", "dtype is 'half'", "expected one of float32"),
    (f"merge huge a --dtype float16 {OUT}", "classifier.bias holds 1e+05", "expected a wider dtype"),
    (f"merge a nested {OUT}", "nested/config.json is nested too deeply", "expected JSON of ordinary depth"),
    ("merge a b --output $NOWHERE/out", "NOWHERE, which is not set", "write the path in full"),
    ("merge a b --output /proc/x", "/proc/x", "expected a folder"),
    ("demo --output /proc/x", "/proc/x", "expected a folder"),
    (f"fuse --ckpts a b --precision 7 {OUT}", "Precision '7'", "Allowed"),
    (f"fuse --ckpts a b --precision bf16-true {OUT}", "'bf16-true', which rounds the models", "expected 32-true"),
]


@pytest.mark.parametrize(("line", "wrong", "expected"), CASES, ids=[case[0] for case in CASES])
def test_bad_input(
    broken: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
    line: str,
    wrong: str,
    expected: str,
) -> None:
    """Code 2, one line on standard error that says what is wrong and what was expected; every file is as it was."""
    monkeypatch.chdir(broken)
    before = files(broken)
    outcome = command(*line.split())
    assert outcome.code == 2
    assert outcome.err.startswith(f"fusionlab {line.split(maxsplit=1)[0]}: error: ")
    assert outcome.err.count("\n") == 1
    assert outcome.err.endswith("\n")
    assert len(outcome.err) < 400
    assert "Traceback" not in outcome.out
    sentence = outcome.err.split(": error: ", 1)[1]
    assert wrong in sentence
    assert expected in sentence
    assert files(broken) == before
    assert not (broken / "made").exists(), "code in a pickle ran"
    shown = [w for w in recwarn if not issubclass(w.category, DeprecationWarning | ResourceWarning)]
    assert not shown, "a warning would be more lines"


def files(folder: Path) -> dict[str, int]:
    """Every file and folder, hidden ones too, with the time it was changed last."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}
