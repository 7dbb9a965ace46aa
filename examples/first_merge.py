# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # A first merge
#
# A base model knows all ten digits a little. One copy is fine-tuned on 0 to 4, another on 5 to 9, and each
# forgets the other half. Merged, they are one model for all ten. No data is downloaded; half a minute on one
# core.

# %%
import copy
import logging
import warnings

import matplotlib.pyplot as plt
import torch
from lightning import Trainer, seed_everything

import fusionlab
from fusionlab.data import Digits
from fusionlab.tasks import ImageClassification

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


# %% [markdown]
# ## A base model and two fine-tunes


# %%
def trained(model, data, epochs, rate):
    """A copy of the model, or a fresh one of a config, after some epochs."""
    seed_everything(0, verbose=False)
    task = ImageClassification(copy.deepcopy(model), num_classes=10, learning_rate=rate)
    Trainer(max_epochs=epochs, accelerator="cpu", limit_val_batches=0, **quiet).fit(task, datamodule=data)
    return task.model.eval()


sizes = {"image_size": 8, "patch_size": 4, "num_channels": 1, "hidden_size": 32, "num_hidden_layers": 2}
config = {"library": "transformers", "model_type": "vit", "num_attention_heads": 4, "intermediate_size": 64, **sizes}
base = trained(config, Digits(val_size=100), 4, 4e-3)
fusionlab.save(base, "base")
halves = {"0 to 4": [0, 1, 2, 3, 4], "5 to 9": [5, 6, 7, 8, 9]}
models = {name: trained("base", Digits(val_size=100, classes=classes), 8, 1e-3) for name, classes in halves.items()}

# %% [markdown]
# ## Merges by several methods
#
# Fine-tunes of one base share a basis, so nothing has to be matched. Some methods look at training batches of
# each model, some at the base model, `simple` at neither.


# %%
def batches(split, **settings):
    """The batches of a split of the digits."""
    data = Digits(val_size=100, **settings)
    data.prepare_data()
    data.setup("test" if split == "test" else "fit")
    return list(data.test_dataloader() if split == "test" else data.train_dataloader())


seen = [batches("train", classes=classes) for classes in halves.values()]
ends = list(models.values())
merges = {
    "plain mean": fusionlab.merge(ends),
    "Fisher": fusionlab.merge(ends, "fisher", data=seen),
    "RegMean": fusionlab.merge(ends, "regmean", data=seen),
    "task arithmetic": fusionlab.merge(ends, "task_arithmetic", base=base, lambda_=1.5),
    "TIES": fusionlab.merge(ends, "ties", base=base),
}

# %% [markdown]
# ## Which one is best here

# %%
tests = batches("test")


@torch.no_grad()
def accuracy(model):
    """Per cent of the test digits that are told right."""
    right = [(model(pixel_values=b["pixel_values"]).logits.argmax(-1) == b["labels"]).double() for b in tests]
    return 100 * float(torch.cat(right).mean())


scores = {name: accuracy(model) for name, model in {"base": base, **models, **merges}.items()}
for name, score in scores.items():
    print(f"{name:16} {score:5.1f} %")

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.barh(list(scores), list(scores.values()), color=["#888"] + ["#bbb"] * 2 + ["#00796b"] * len(merges))
axes.invert_yaxis()
axes.set(xlabel="accuracy on all ten digits (%)")
figure.savefig("first_merge.png", dpi=110)

# %% [markdown]
# ## Keep it

# %%
best = max(merges, key=scores.get)
fusionlab.save(merges[best], "merged", like="base")
assert scores[best] > max(scores[name] for name in models), scores
