# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Adapters
#
# Two LoRA adapters of one small Llama, one trained by PEFT on code, one on prose, become one model and one
# adapter again. The texts are Python's own standard library. A minute on one core, nothing to download; PEFT has
# to be installed.

# %%
import io
import logging
import sysconfig
import tokenize
import warnings
from pathlib import Path

import pandas
import torch
from lightning import Trainer, seed_everything
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from fusionlab.cli import main
from fusionlab.data import LanguageModelling
from fusionlab.tasks import CausalLanguageModelling, ExportCheckpoint

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}

# %% [markdown]
# ## Two kinds of text

# %%
library = Path(sysconfig.get_path("stdlib"))
texts = {"code": [], "prose": []}
for module in ("argparse.py", "difflib.py", "tarfile.py", "subprocess.py", "inspect.py", "typing.py"):
    source = (library / module).read_text(encoding="utf-8")
    prose = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            prose |= set(range(token.start[0], token.end[0] + 1))
    for at, line in enumerate(source.splitlines(), 1):
        if line.strip():
            texts["prose" if at in prose else "code"].append(line)
for name, lines in texts.items():
    Path(f"{name}.txt").write_text("\n".join(lines[:3000]), encoding="utf-8")

# %% [markdown]
# ## A base model
#
# It reads both, byte by byte, for a short while.

# %%
bytewise = {"tokenizer": "bytes", "max_length": 64, "val_split": None, "test_split": None, "test_size": 0.1}
sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
llama = {
    "model_type": "llama",
    "vocab_size": 259,
    "max_position_embeddings": 64,
    "bos_token_id": 257,
    "eos_token_id": 257,
}
Path("both.txt").write_text(
    "\n".join(line for pair in zip(*texts.values(), strict=False) for line in pair), encoding="utf-8"
)
seed_everything(0, verbose=False)
task = CausalLanguageModelling({**llama, **sizes}, learning_rate=5e-3)
settings = {"accelerator": "cpu", "max_steps": 150, "callbacks": [ExportCheckpoint("base")], **quiet}
Trainer(**settings).fit(task, datamodule=LanguageModelling("both.txt", batch_size=16, **bytewise))

# %% [markdown]
# ## Two adapters by PEFT

# %%
for name in texts:
    data = LanguageModelling(f"{name}.txt", batch_size=16, **bytewise)
    data.prepare_data()
    data.setup("fit")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained("base")
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=5e-3)
    for _, batch in zip(range(100), data.train_dataloader(), strict=False):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(f"adapters/{name}")
    print(f"{name:6} last loss {loss.item():.2f}")

# %% [markdown]
# ## Merge and measure
#
# `fusionlab fuse --config fusion.yaml`: each adapter is read as the base model with its changes in the weights.
# Perplexity by byte on held-out lines of both kinds.

# %%
told = "tokenizer: bytes, max_length: 64, val_split: null, test_split: null, test_size: 0.1"
Path("fusion.yaml").write_text(
    f"""
ckpts: [adapters/code, adapters/prose]
match: none
method: [simple, task_arithmetic, ties]
hyperparameters: {{task_arithmetic: {{lambda_: 1.5}}}}
data:
  - {{class_path: LanguageModelling, init_args: {{path: code.txt, {told}}}}}
  - {{class_path: LanguageModelling, init_args: {{path: prose.txt, {told}}}}}
points: 0
output: merged
""",
    encoding="utf-8",
)
assert main(["fuse", "--config", "fusion.yaml"]) == 0

# %%
results = pandas.read_csv("merged/results.csv")
scores = results[results["metric"] == "perplexity"]
shown = scores.assign(model=scores["method"].where(scores["method"] != "end model", scores["models"]))
pivot = shown.pivot_table(index="model", columns="data_set", values="value", sort=False)
print(pivot.round(2))

axes = pivot.plot.barh(figsize=(5, 3.2), color=["#00796b", "#80cbc4"])
axes.invert_yaxis()
axes.set(xlabel="perplexity by byte (less is better)", ylabel="")
axes.legend(title="measured on", loc="upper left", bbox_to_anchor=(1, 1))
axes.figure.savefig("adapters.png", dpi=110, bbox_inches="tight")

# %% [markdown]
# ## One adapter again
#
# The difference of the merge from the base model, of rank 16: two changes of rank 8 fit into it, and PEFT loads
# it.

# %%
assert main(["extract", "merged/merged", "--base", "base", "--rank", "16", "--output", "merged_lora"]) == 0
assert Path("merged_lora/adapter_model.safetensors").exists()
