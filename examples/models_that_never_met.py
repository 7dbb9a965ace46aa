# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Models that never met
#
# Two vision transformers are trained on the same digits from two seeds. Their plain mean is far below them; matched
# first, it is about as good as they are. No data is downloaded; half a minute on one core.

# %%
import logging
import warnings

import matplotlib.pyplot as plt
from lightning import Trainer, seed_everything

import fusionlab
from fusionlab.data import Digits
from fusionlab.tasks import ImageClassification

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}

# %% [markdown]
# ## Two end models

# %%
sizes = {"image_size": 8, "patch_size": 4, "num_channels": 1, "hidden_size": 32, "num_hidden_layers": 2}
config = {"library": "transformers", "model_type": "vit", "num_attention_heads": 4, "intermediate_size": 64, **sizes}
models = []
for seed in (0, 1):
    seed_everything(seed, verbose=False)
    task = ImageClassification(config, num_classes=10, learning_rate=4e-3)
    Trainer(max_epochs=12, accelerator="cpu", limit_val_batches=0, **quiet).fit(task, datamodule=Digits(val_size=100))
    models.append(task.model.eval())

# %% [markdown]
# ## Three ways to match
#
# `align` returns twins: models that compute what they computed, in one common basis. `learned` looks at images
# and never at labels.

# %%
digits = Digits(val_size=100)
digits.prepare_data()
digits.setup("fit")
digits.setup("test")
images, tests = list(digits.train_dataloader()), list(digits.test_dataloader())

twins = {"unmatched": models}
twins["paper"] = fusionlab.align(models, preset="paper")
twins["weights"] = fusionlab.align(models, preset="weights")
twins["learned"] = fusionlab.align(models, preset="learned", data=images, steps=200)

# %% [markdown]
# ## What lies between them

# %%
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
middle = {}
for name, (a, b) in twins.items():
    curve = fusionlab.barrier(a, b, tests, points=11)
    middle[name] = curve.score[5]
    axes.plot(curve.positions, [100 * value for value in curve.score], marker="o", label=name)
    print(f"{name:10} half way {100 * curve.score[5]:5.1f} %, barrier {curve.barrier:.3f}")
axes.set(xlabel="from one model (0) to the other (1)", ylabel="accuracy on test digits (%)")
axes.legend()
figure.savefig("models_that_never_met.png", dpi=110)

# %% [markdown]
# ## One model

# %%
merged = fusionlab.merge(twins["learned"])
fusionlab.save(merged, "merged")
assert middle["learned"] > middle["unmatched"] + 0.2, middle
