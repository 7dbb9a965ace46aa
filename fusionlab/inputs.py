"""The inputs that matching, merging and polishing may look at; no result is ever reported on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset

from fusionlab.errors import InputError
from fusionlab.forward import class_texts
from fusionlab.learning.supplement import FEW
from fusionlab.probes import in_words, probes, takes_text, teach
from fusionlab.repeatable import repeatable
from fusionlab.symmetry import SymmetryError

if TYPE_CHECKING:  # the data modules' library takes most of a second
    from fusionlab.data.contract import DataFacts

Batches = Iterable[Mapping[str, Tensor]]
Options = TypeVar("Options", bound=Any)


@dataclass(frozen=True)
class Inputs:
    """Batches of inputs, with labels or without.

    Attributes:
        own: for each model batches like what it was trained on.
        shared: batches of all of them, the same for every model.
        held_out: batches that nothing was trained on, to choose between merges by; may be empty.
        held_out_facts: of each of these, the place of the model whose own data it is like (None for data of all), and
            what its data module states; empty where that is not known.
        described: what they are, for the reader.
        is_synthetic: whether no data are among them.
    """

    own: tuple[Batches, ...]
    shared: Batches
    held_out: tuple[Batches, ...] = ()
    described: str = ""
    held_out_facts: tuple[tuple[int | None, DataFacts], ...] = ()
    is_synthetic: bool = False

    @property
    def is_shared(self) -> bool:
        """True if all models have the same inputs."""
        return all(batches is self.own[0] for batches in self.own)

    @property
    def are_few(self) -> bool:
        """True if they are data of all models and known to be fewer than learning leaves alone."""
        known = self.is_shared and not self.is_synthetic and isinstance(self.shared, DataLoader)
        return known and _count(self.shared) < FEW

    def suited(self, options: Options) -> Options:
        """The options of a descent on these inputs; synthetic ones are joined by no others.

        Args:
            options: a `RefineOptions` or `PolishOptions`.
        """
        return replace(options, synthetic=0) if self.is_synthetic else options

    @staticmethod
    def of(
        modules: Sequence[LightningDataModule], count: int, samples: int | None = None, seed: int = 0
    ) -> Inputs | None:
        """The training data of data modules, in a fixed order, and their validation data to choose by.

        What training draws anew in every epoch (crops of images, hidden words) is drawn once: every pass is the same.

        Args:
            modules: one for all models, or one for each, in order; where there is another number, all models get all.
            count: how many models.
            samples: how many samples to draw of each module; all of them if None.
            seed: of the draw.

        Returns:
            The inputs; None where a module has no training data.

        Raises:
            InputError: a number of samples below 1, training data of unknown length, or a data module that is not what
                the contract says.
        """
        if samples is not None and samples < 1:
            raise InputError(f"samples is {samples}; expected at least 1")
        if not modules:
            return None
        # Reading data sets takes a library that Python calls on batches need not wait for.
        from fusionlab.data.contract import described  # noqa: PLC0415

        drawn, held_out, words = [], [], []
        facts: list[tuple[int | None, DataFacts]] = []
        for place, module in enumerate(modules):
            loader = _train_loader(module)
            if loader is None:
                return None
            drawn.append(repeatable(in_order(loader, samples, seed), seed))
            judging = _loaders(module.val_dataloader()) if is_overridden("val_dataloader", module) else []
            held_out += judging
            facts += [(place if len(modules) == count else None, described(module))] * len(judging)
            words.append(f"{_count(drawn[-1])} training samples of {described(module).name}")
        shared = drawn[0] if len(drawn) == 1 else _mixed(drawn)
        own = tuple(drawn) if len(drawn) == count else (shared,) * count
        return Inputs(own, shared, tuple(held_out), ", ".join(words), tuple(facts))

    @staticmethod
    def synthetic(
        models: Sequence[nn.Module],
        samples: int = 4000,
        seed: int = 0,
        kind: str = "auto",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        length: int | None = None,
    ) -> Inputs:
        """Synthetic inputs, for models that come without data (see `fusionlab.probes.probes`).

        Special tokens of texts are those of the tokenizer in the folder that the first model was loaded from.

        Args:
            models: that they are for.
            samples: how many.
            seed: same seed, same inputs.
            kind: of the probes.
            mean: of each channel, as the models' preprocessor has it.
            std: of each channel.
            length: tokens of the longest text, if not the probes' own.
        """
        tokenizer = _tokenizer_of(models[0])
        batches = probes(models, samples, kind, seed, mean=mean, std=std, tokenizer=tokenizer, length=length)
        words = f"{samples} synthetic inputs ({in_words(models[0], kind, tokenizer)}), no real data"
        return Inputs((batches,) * len(models), batches, described=words, is_synthetic=True)

    @staticmethod
    def from_batches(data: Any, count: int) -> Inputs:
        """Inputs from Python objects.

        Args:
            data: an iterable of batches for all models, or a sequence with one such iterable for each; each can be
                gone through more than once (a list or a DataLoader).
            count: how many models.

        Raises:
            InputError: no batches, something that can be gone through only once, or another number of iterables than
                models.
        """
        if isinstance(data, Inputs):
            return data
        if isinstance(data, str | PathLike | LightningDataModule) or not isinstance(data, Iterable):
            kind = f"a path ({data})" if isinstance(data, str | PathLike) else f"of the class {type(data).__name__}"
            raise InputError(
                f"data is {kind}; expected batches, such as module.train_dataloader() of a data module after "
                f"module.setup('fit'); fusionlab.data.own_data(PATH, MODEL_PATH) makes one of a file"
            )
        if iter(data) is data:
            raise InputError("data can be gone through only once; expected a list of batches or a DataLoader")
        first = next(iter(data), None)
        if first is None:
            raise InputError("data holds no batch; expected at least one")
        if isinstance(first, Mapping):
            data = repeatable(data)
            return Inputs((data,) * count, data, described="the given data")
        own = tuple(map(repeatable, data))
        if not all(isinstance(batches, Iterable) and not isinstance(batches, Tensor) for batches in own):
            kind = type(first).__name__
            raise InputError(f"data holds a {kind}; expected batches as mappings from names to tensors")
        if len(own) != count:
            sets = "1 set" if len(own) == 1 else f"{len(own)} sets"
            raise InputError(f"data holds {sets} of batches for {count} models; expected one for each")
        if any(iter(batches) is batches for batches in own):
            raise InputError("data can be gone through only once; expected lists of batches or DataLoaders")
        # In turn, so that the first few are of all models, whatever their order.
        turns = itertools.chain.from_iterable(itertools.zip_longest(*own))
        return Inputs(own, [batch for batch in turns if batch is not None], described="the given data of each model")


def synthetic_ones_teach(models: Sequence[nn.Module]) -> bool:
    """True if what is learned on the models' synthetic inputs holds for data (see `fusionlab.probes.teach`).

    Args:
        models: of one architecture, whichever; False for one that is not described, or that fails at writing a text.
    """
    try:
        if not all(teach(model, _tokenizer_of(model)) for model in models):
            return False
    except SymmetryError:
        return False
    try:
        Inputs.synthetic(models, samples=len(models))
    # A model's own class writes, and what it raises may be anything.
    except Exception:
        return False
    return True


def _tokenizer_of(model: nn.Module) -> Any:
    """The tokenizer in the folder that a model of text was loaded from; None where there is none."""
    if not takes_text(model):
        return None
    # Reading data sets takes a library that models of images need not wait for.
    from fusionlab.data.tokenizers import tokenizer_beside  # noqa: PLC0415

    return tokenizer_beside(model)


def _count(loader: Any) -> int:
    return len(loader.dataset)


def _train_loader(module: LightningDataModule) -> DataLoader[Any] | None:
    if not is_overridden("train_dataloader", module):
        return None
    module.prepare_data()
    module.setup("fit")
    found = _loaders(module.train_dataloader())
    return found[0] if found else None


def _loaders(loaders: Any) -> list[DataLoader[Any]]:
    found = loaders if isinstance(loaders, Sequence) else [loaders]
    return [loader for loader in found if isinstance(loader, DataLoader) and gives_batches(loader)]


def gives_batches(loaders: Any) -> bool:
    """True if a loader, or one of several, has batches; one that does not say how many counts as having some.

    Args:
        loaders: a loader, a sequence of them, or None.
    """
    if loaders is None:
        return False
    if isinstance(loaders, Sequence):
        return any(map(gives_batches, loaders))
    try:
        return len(loaders) > 0
    except TypeError:
        # A stream, such as an iterable data set.
        return True


def in_order(loader: DataLoader[Any], samples: int | None, seed: int) -> DataLoader[Any]:
    """The loader's data in a fixed order, or a part of it drawn at random; the last batch is kept.

    Raises:
        InputError: data that only come in an order of their own.
    """
    dataset: Any = loader.dataset
    if isinstance(dataset, IterableDataset):
        raise InputError(
            f"the data {type(dataset).__name__} are a stream, of which no samples can be drawn; expected a data set "
            f"with a length"
        )
    if samples is not None and samples < len(dataset):
        chosen = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed))[:samples]
        dataset = Subset(dataset, sorted(chosen.tolist()))
    return DataLoader(dataset, batch_size=loader.batch_size, collate_fn=loader.collate_fn)


def _mixed(loaders: Sequence[DataLoader[Any]]) -> DataLoader[Any]:
    """All data of several loaders, shuffled once so that every stretch of it has some of each.

    Images that come with the texts of their classes lie apart from those of other data, since a batch is read with one
    set of texts: every stretch has batches of each.
    """
    together: Any = ConcatDataset([loader.dataset for loader in loaders])
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(together), generator=generator)
    size, collate = loaders[0].batch_size or 1, loaders[0].collate_fn
    if class_texts(collate([together[0]])) is None:
        return DataLoader(Subset(together, order.tolist()), batch_size=size, collate_fn=collate)
    ends = torch.tensor(together.cumulative_sizes)
    owner = torch.bucketize(order, ends, right=True)
    batches = [batch.tolist() for place in range(len(ends)) for batch in order[owner == place].split(size)]
    turns = torch.randperm(len(batches), generator=generator).tolist()
    return DataLoader(together, batch_sampler=[batches[turn] for turn in turns], collate_fn=collate)
