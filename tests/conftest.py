"""Settings for every test: nothing is looked up on the hub."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
