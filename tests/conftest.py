"""Settings for every test: no model hub, one thread unless ``TEST_THREADS`` says otherwise."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

# The models are tiny: threads would only wait for each other. Tests run side by side instead.
torch.set_num_threads(int(os.environ.get("TEST_THREADS", "1")))
