# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Own data
#
# From a table of labelled texts to a measured merge, with a report. The table is made here, of the lines of
# Python's own standard library: is a line code or prose? Two classifiers learn it from other modules each. Put
# your own CSV in its place. A minute on one core, nothing to download.

# %%
import io
import logging
import sysconfig
import tokenize
import warnings
from pathlib import Path

import pandas
from lightning import Trainer, seed_everything

from fusionlab.cli import main
from fusionlab.data import TextClassification
from fusionlab.tasks import ExportCheckpoint, SequenceClassification

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}

# %% [markdown]
# ## The tables


# %%
def lines_of(module):
    """The lines of a module with ``prose`` for those that lie in comments and docstrings, ``code`` for all others."""
    text = (Path(sysconfig.get_path("stdlib")) / module).read_text(encoding="utf-8")
    prose = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            prose |= set(range(token.start[0], token.end[0] + 1))
    named = [(line.strip(), "prose" if at in prose else "code") for at, line in enumerate(text.splitlines(), 1)]
    return [(line, label) for line, label in named if len(line) > 8]


modules = {
    "files": ["tarfile.py", "zipfile/__init__.py", "shutil.py"],
    "text": ["textwrap.py", "difflib.py", "argparse.py"],
}
if not (Path(sysconfig.get_path("stdlib")) / "zipfile").is_dir():
    modules["files"][1] = "zipfile.py"
for name, files in modules.items():
    rows = [row for file in files for row in lines_of(file)]
    table = pandas.DataFrame(rows, columns=["text", "label"]).sample(1200, random_state=0)
    table.to_csv(f"{name}.csv", index=False)
    print(name, table["label"].value_counts().to_dict())

# %% [markdown]
# ## Two end models
#
# `TextClassification` reads the table: which columns, which labels in which order, how much is held out.
# `tokenizer: bytes` needs no file; with a model of the hub it is the model's name.

# %%
settings = {"tokenizer": "bytes", "labels": ["code", "prose"], "test_split": None, "test_size": 0.25, "max_length": 64}
small = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}


def trained(model, name, epochs, rate):
    """An end model in a folder of its own."""
    seed_everything(0, verbose=False)
    data = TextClassification(f"{name}.csv", batch_size=32, **settings)
    task = SequenceClassification(model, settings["labels"], learning_rate=rate)
    export = ExportCheckpoint(f"models/{name}" if isinstance(model, str) else "models/base")
    Trainer(max_epochs=epochs, accelerator="cpu", callbacks=[export], **quiet).fit(task, datamodule=data)


trained({"model_type": "bert", **small}, "files", 2, 2e-3)
for name in modules:
    trained("models/base", name, 3, 1e-3)

# %% [markdown]
# ## Merge and measure
#
# What `fusionlab fuse --config fusion.yaml` does on the command line. Both tables are tested on, so that the
# merge is measured on what each model knows.

# %%
config = """
ckpts: [models/files, models/text]
match: none
method: [regmean, simple]
data:
  - {class_path: TextClassification, init_args: {path: files.csv, SETTINGS}}
  - {class_path: TextClassification, init_args: {path: text.csv, SETTINGS}}
points: 5
output: merged
"""
told = "tokenizer: bytes, labels: [code, prose], test_split: null, test_size: 0.25, max_length: 64"
Path("fusion.yaml").write_text(config.replace("SETTINGS", told), encoding="utf-8")
assert main(["fuse", "--config", "fusion.yaml"]) == 0

# %% [markdown]
# ## The numbers
#
# `merged/report.html` has them with a verdict; `merged/results.csv` has all digits.

# %%
results = pandas.read_csv("merged/results.csv")
scores = results[results["metric"] == "accuracy"]
shown = scores.assign(model=scores["method"].where(scores["method"] != "end model", scores["models"]))
pivot = 100 * shown.pivot_table(index="model", columns="data_set", values="value", sort=False)
print(pivot.round(1))

axes = pivot.plot.barh(figsize=(5, 3.2), color=["#00796b", "#80cbc4"])
axes.invert_yaxis()
axes.set(xlabel="accuracy (%)", ylabel="")
axes.legend(title="measured on", loc="upper left", bbox_to_anchor=(1, 1))
axes.figure.savefig("own_data.png", dpi=110, bbox_inches="tight")
assert Path("merged/report.html").exists()
