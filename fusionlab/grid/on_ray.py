"""Cells as tasks on Ray: on a cluster, or on the processors of this machine."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import threading
import traceback
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from fusionlab.errors import InputError, first_line
from fusionlab.grid.cells import Finished
from fusionlab.grid.design import Cell
from fusionlab.grid.places import Maker, Place, Trained
from fusionlab.grid.schedule import Schedule
from fusionlab.grid.shared import Shared, marked

# How often a cell is tried again whose worker was lost.
RETRIES = 3
# Seconds that cells have to clean up when they are given up; a command that is interrupted has ten.
PATIENCE = 3.0
_GPUS = ("gpu", "cuda")


@dataclass(frozen=True)
class Told:
    """The answer of a task.

    Attributes:
        finished: the cell; None where the node could not make any.
        refused: why it could not.
        broken: end models that the worker could not have, with the reason.
        fault: the first error of fusionlab's own on that worker, with its traceback as a note.
    """

    finished: Finished | None
    refused: str = ""
    broken: dict[Trained, Exception] | None = None
    fault: Exception | None = None


class OnRay(Place):
    """A Ray cluster. A cell is a task; one whose worker is lost is tried again on another.

    A worker keeps what it has of a group (its models and matchings) for the next cell, if that is of the same group.

    Args:
        address: ``ray`` for the cluster that this machine belongs to, or that RAY_ADDRESS names, or else one of this
            machine's processors alone; ``ray://HOST:PORT`` for one that is reached from outside.
        cpus: processors that a cell takes.
        accelerator: of the passes over data. A cell takes a GPU where it is ``gpu``, or ``auto`` and the cluster has
            some.

    Raises:
        InputError: Ray is not installed, the address is another word, or the number is below 1.
    """

    def __init__(self, address: str, cpus: int = 1, accelerator: str = "auto") -> None:
        if address != "ray" and not address.startswith("ray://"):
            raise InputError(f"on is {address!r}; expected 'ray', or 'ray://HOST:PORT' of a Ray cluster")
        if cpus < 1:
            raise InputError(f"cpus is {cpus}; expected at least 1 processor for each cell")
        # Nothing is reported to anybody, unless the user wants it so.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._ray = _import_ray()
        self.address, self.cpus, self.accelerator = address, cpus, accelerator

    def cells(self, maker: Maker, missing: Sequence[Cell]) -> Generator[Finished, None, None]:
        """Make cells, see `Place.cells`."""
        if not missing:
            return
        with marked(maker.folder) as shared, self._connected():
            yield from self._made(maker, missing, shared)

    def _made(self, maker: Maker, missing: Sequence[Cell], shared: Shared) -> Generator[Finished, None, None]:
        ray, sent, need = self._ray, self._sent(maker), self._need()
        if not _slots(ray.nodes(), need):
            wanted = " and ".join(f"{count} {name}" for name, count in need.items() if count)
            raise InputError(f"no node of the Ray cluster has {wanted} for a cell; expected one, or fewer cpus")
        self._refuse_blind_nodes(sent, shared)
        task, options = ray.remote(_make), {"num_cpus": self.cpus, "num_gpus": need["GPU"], "max_retries": RETRIES}
        schedule = Schedule(missing, maker.untrained)
        running: dict[Any, Cell] = {}
        try:
            while schedule or running:
                # One waits at Ray's where no node is left, until one comes.
                while len(running) < max(1, _slots(ray.nodes(), need)) and (cell := schedule.start()) is not None:
                    sending = task.options(name=cell.name, **options)
                    running[sending.remote([sent], shared, cell, dict(maker.broken))] = cell
                # Woken again and again, as nodes come and go.
                for ref in ray.wait(list(running), num_returns=1, timeout=5.0)[0]:
                    cell = running.pop(ref)
                    finished = self._told(maker, cell, ref)
                    schedule.end(cell)
                    yield finished
        finally:
            self._give_up(list(running))

    def _sent(self, maker: Maker) -> Any:
        try:
            return self._ray.put(maker)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise InputError(
                f"the grid cannot be sent to Ray ({first_line(error)}); expected data modules that can be pickled"
            ) from error

    def _need(self) -> dict[str, int]:
        """The resources that a cell takes, by Ray's names for them."""
        has_gpus = any(node["Resources"].get("GPU") for node in self._ray.nodes() if node["Alive"])
        takes_one = self.accelerator in _GPUS or (self.accelerator == "auto" and has_gpus)
        return {"CPU": self.cpus, "GPU": int(takes_one)}

    def _refuse_blind_nodes(self, sent: Any, shared: Shared) -> None:
        """Look at the folders from every node that is there, before any work.

        Raises:
            InputError: one does not see them, or cannot load the grid.
        """
        ray, at = self._ray, import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        looks = {
            ray.remote(_look)
            .options(num_cpus=0, max_retries=0, scheduling_strategy=at(node["NodeID"], soft=False))
            .remote([sent], shared): node["NodeManagerAddress"]
            for node in ray.nodes()
            if node["Alive"] and _slots([node], self._need())
        }
        for ref, address in looks.items():
            try:
                refusal = ray.get(ref)
            except ray.exceptions.RayTaskError as error:
                refusal = f"it cannot run fusionlab ({_last_line(error)})"
            except ray.exceptions.RayError:
                continue  # it is no longer there
            if refusal:
                raise InputError(f"node {address} of the Ray cluster: {refusal}")

    def _told(self, maker: Maker, cell: Cell, ref: Any) -> Finished:
        """A cell that a task has made, or why it has none."""
        errors = self._ray.exceptions
        try:
            told: Told = self._ray.get(ref)
        except errors.RayTaskError as error:
            return maker.fail(cell, RuntimeError(f"on Ray: {_last_line(error)}"))
        except errors.RayError as error:
            return maker.fail(cell, InputError(f"Ray gave it up after {RETRIES} more tries: {first_line(error)}"))
        maker.broken = (told.broken or {}) | maker.broken
        maker.fault = maker.fault or told.fault
        return maker.fail(cell, InputError(told.refused)) if told.finished is None else told.finished

    def _give_up(self, running: list[Any]) -> None:
        """Cancel cells: they come down in order if they can in some seconds."""
        if not running:
            return
        with suppress(self._ray.exceptions.RayError):
            for ref in running:
                self._ray.cancel(ref, force=False)
            for ref in self._ray.wait(running, num_returns=len(running), timeout=PATIENCE)[1]:
                self._ray.cancel(ref, force=True)

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """A connection to the cluster; one that was there before stays.

        Raises:
            InputError: there is no cluster.
        """
        ray = self._ray
        if ray.is_initialized():
            yield
            return
        with _same_handler(signal.SIGTERM):
            try:
                address = None if self.address == "ray" else self.address
                with warnings.catch_warnings(action="ignore"):
                    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RuntimeError, ValueError, TimeoutError, ImportError) as error:
                raise InputError(
                    f"on is {self.address!r}, but Ray cannot be reached there ({first_line(error)}); expected a "
                    f"cluster that runs, and RAY_AUTH_MODE=token where it asks for a token (docs/cluster.md)"
                ) from error
        try:
            yield
        finally:
            ray.shutdown()


def _import_ray() -> Any:
    try:
        return import_module("ray")
    except ImportError as error:
        raise InputError("cells run on Ray, which is not installed; pip install 'fusionlab[ray]'") from error


@contextmanager
def _same_handler(number: int) -> Iterator[None]:
    """Give a signal back to its handler after the block, in which a library takes it for itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(number)
    try:
        yield
    finally:
        signal.signal(number, handler)


def _slots(nodes: Sequence[dict[str, Any]], need: dict[str, int]) -> int:
    """The number of cells that some nodes have resources for, side by side."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    return sum(int(min(has.get(name, 0) // count for name, count in need.items() if count)) for has in alive)


def _last_line(error: Exception) -> str:
    """The last line of an error of a task: the lines before are its traceback."""
    return str(error).strip().splitlines()[-1].strip()


# What a worker keeps from one cell to the next, by the token of its grid.
_kept: dict[str, Maker] = {}


def _look(sent: list[Any], shared: Shared) -> str:
    """A sentence on why a node can make no cells of a grid; empty where it can."""
    try:
        _maker(sent, shared)
    except Exception as error:
        return str(error) if isinstance(error, InputError) else f"it cannot load the grid ({first_line(error)})"
    return ""


def _make(sent: list[Any], shared: Shared, cell: Cell, broken: dict[Trained, Exception]) -> Told:
    """Make a cell on a worker, unless one that was lost had it on the disk already."""
    try:
        maker = _maker(sent, shared)
    except InputError as error:
        return Told(None, f"on a node of the Ray cluster: {error}")
    maker.broken |= broken
    finished = maker.kept(cell) or maker.make(cell)
    fault, maker.fault = maker.fault, None
    return Told(finished, broken=maker.broken, fault=None if fault is None else _portable(fault))


def _maker(sent: list[Any], shared: Shared) -> Maker:
    """The maker of a grid's cells on this worker; the same for all of them."""
    if shared.token not in _kept:
        if "SLURM_NTASKS" in os.environ:
            # Lightning would take a worker for one of several tasks of srun, which started the node.
            os.environ["SLURM_JOB_NAME"] = "interactive"
        shared.look()
        _kept.clear()
        _kept[shared.token] = import_module("ray").get(sent[0])
    return _kept[shared.token]


def _portable(error: Exception) -> Exception:
    """An error that can be pickled, with its traceback as a note."""
    lines = "".join(traceback.format_exception(error))
    try:
        found = pickle.loads(pickle.dumps(error))
    except Exception:
        found = RuntimeError(f"{type(error).__name__}: {first_line(error)}")
    found.add_note(f"On a worker of Ray:\n{lines}")
    return found
