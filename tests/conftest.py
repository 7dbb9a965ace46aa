"""Settings for every test: no model hub, one thread unless ``TEST_THREADS`` says otherwise."""

import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

# Inferred blueprints are kept in one folder for the whole run, which the first process makes and those that it starts
# share; never in the user's own. ``TEST_BLUEPRINTS`` names one that stays for the next run.
CACHE = None
if "TEST_BLUEPRINTS" in os.environ:
    os.environ["FUSIONLAB_CACHE"] = os.environ["TEST_BLUEPRINTS"]
elif "PYTEST_XDIST_WORKER" not in os.environ:
    CACHE = tempfile.mkdtemp(prefix="fusionlab-tests-")
    os.environ["FUSIONLAB_CACHE"] = CACHE

# Helpers assert too; without this their failures show no values. It must happen before they are imported.
ROOT = Path(__file__).parent
for path in ROOT.rglob("*.py"):
    if not path.name.startswith(("test_", "conftest", "__init__")):
        pytest.register_assert_rewrite(".".join((ROOT.name, *path.relative_to(ROOT).with_suffix("").parts)))

# The models are tiny: threads would only wait for each other, those of commands that tests start as well. Tests run
# side by side instead.
THREADS = os.environ.get("TEST_THREADS", "1")
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, THREADS)

# Of what imports and collection make nothing becomes garbage: looking for it took a quarter of their time.
gc.disable()

import torch

# Started in the background or by nohup, a process ignores these, and so would the commands that tests interrupt.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
    signal.signal(number, handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

torch.set_num_threads(int(THREADS))

# Where there is no GPU, tracing asks for one at every operation, and each time a library is looked for on the disk.
if not torch.cuda.is_available():
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

# The first backward pass decides for which devices autograd starts threads, and with threads no forked child may take
# gradients. Later, tracing has made known more devices than there are.
torch.ones(1, requires_grad=True).sum().backward()


def pytest_collection_finish() -> None:
    """Leave what was imported out of every garbage collection from now on.

    A million objects live as long as the process: looking through them takes most of a second each time, and a grid
    does so for every group of models.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Let what is frozen be collected when the process ends: extension modules complain of what is not.

    The folder of blueprints goes with the process that made it.
    """
    gc.unfreeze()
    if CACHE is not None:
        shutil.rmtree(CACHE, ignore_errors=True)


@pytest.fixture(autouse=True)
def _first_draw() -> None:
    """Start torch's global generator afresh, so that no test's layers depend on which tests ran before it."""
    torch.default_generator.manual_seed(0)  # not those of devices, for which torch formats a stack at each call
