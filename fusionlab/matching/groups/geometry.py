"""The geometry of a group: closest elements, means, charts and balanced forms; one class for each group, by type."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from fusionlab.matching.solvers import Correlation, Rescale
from fusionlab.symmetry.groups import Group

# Decompositions up to this size are small: of one head, not of a residual stream.
SMALL = 256

GroupType = TypeVar("GroupType", bound=Group)
Kind = TypeVar("Kind", bound="type[Geometry[Any]]")


@dataclass(frozen=True)
class Geometry(ABC, Generic[GroupType]):
    """Everything that matching needs of one group beside its elements and their action.

    Correlations are matrices C with ``<G, C> = sum(G * C)`` for the matrix G of an element, anchor by source; their
    leading dimensions are copies, or pairs of copies. Results are float64 unless they say otherwise.

    Attributes:
        group: the group, with its size.
        has_balance: a space of this group has a balanced form; see `balance`.
    """

    group: GroupType
    has_balance: ClassVar[bool] = False

    @property
    def is_assigned(self) -> bool:
        """Gradient descent solves for its discrete choices between steps: orders of units, signs."""
        return False

    @abstractmethod
    def closest(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        """The length-preserving elements that maximise ``<G, C>``, and the maxima.

        Args:
            correlation: C, shape ``(..., n, n)``.

        Returns:
            Elements of shape ``(..., *element)``, and values of shape ``(...)``.
        """

    def solve(self, correlation: Correlation, rescale: Rescale) -> tuple[Tensor, Tensor]:
        """The elements that bring a source closest to an anchor; by default those that keep lengths.

        Args:
            correlation: of any number of copies, shapes ``(..., n, n)`` and ``(..., n)``.
            rescale: as in `fusionlab.matching.groups.solve`; without effect where no element changes a length.

        Returns:
            As `fusionlab.matching.groups.solve`.
        """
        element, value = self.closest(correlation.primal + correlation.dual)
        return element, 2 * value - correlation.primal_norm.sum(-1) - correlation.dual_norm.sum(-1)

    @abstractmethod
    def mean(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        """The means of length-preserving elements under the density ``exp(<G, C>)``, and how well they fit.

        Args:
            correlation: C, shape ``(..., n, n)``.

        Returns:
            Means as matrices that act on vectors, shape ``(..., n, n)``, and the logarithms of the means of
            ``exp(<G, C>)`` over the group, shape ``(...)``.
        """

    def prior(self) -> Tensor:
        """The mean of all length-preserving elements as a matrix, shape ``(n, n)``: nothing is known."""
        return self.mean(torch.zeros(self.group.size, self.group.size, dtype=torch.float64))[0]

    def coordinates(self, general: bool = False) -> int:
        """The number of coordinates of one element in its chart; 0, the default, where gradients have nothing to learn.

        Args:
            general: whether elements may also stretch; those that keep lengths only otherwise.
        """
        return 0

    def chart(self, coordinates: Tensor, general: bool = False) -> Tensor:
        """The elements that coordinates stand for, differentiable; zero is the identity.

        Near zero coordinates are orthonormal generators up to a common factor, so that one learning rate suits all
        groups. Any coordinates give an element of the group, exact to rounding in their own type.

        Args:
            coordinates: shape ``(..., coordinates)``.
            general: as in `coordinates`.

        Returns:
            Elements of shape ``(..., *element)``, in the type of the coordinates.

        Raises:
            TypeError: a group without coordinates.
        """
        raise TypeError(f"no chart of {self.group}")

    def steepest(self, gradient: Tensor, general: bool = False) -> Tensor | None:
        """The direction that coordinates of matrices go in against a gradient: every singular value counts alike.

        Its root mean square is near one. None, the default, where coordinates are not those of a matrix.

        Args:
            gradient: shape ``(..., coordinates)``.
            general: as in `coordinates`.
        """
        return None

    def balance(self, primal: Tensor, dual: Tensor) -> Tensor:
        """The elements that balance a space, of which two Gram matrices tell; see `fusionlab.matching.gauge.balance`.

        Args:
            primal: Gram matrix of the primal side, shape ``(*copies, n, n)``.
            dual: that of the dual side.

        Returns:
            Elements of shape ``(*copies, *element)``.

        Raises:
            TypeError: a group without a balanced form.
        """
        raise TypeError(f"no balanced form of {self.group}")


_registry: dict[type[Group], Callable[[Any], Geometry[Any]]] = {}


def geometry_of(group: type[Group]) -> Callable[[Kind], Kind]:
    """Register the decorated `Geometry` for one type of group (for it alone, not for those derived from it)."""

    def register(kind: Kind) -> Kind:
        _registry[group] = kind
        return kind

    return register


def geometry(group: Group) -> Geometry[Any]:
    """The geometry of a group, found by its type.

    Raises:
        TypeError: a group whose geometry nobody registered.
    """
    if type(group) not in _registry:
        raise TypeError(
            f"nothing is registered to match spaces of the group {group}; expected a class under "
            f"fusionlab/matching/groups decorated with @geometry_of({type(group).__name__})"
        )
    return _registry[type(group)](group)


def registered() -> tuple[type[Group], ...]:
    """Every type of group that has a geometry."""
    return tuple(_registry)


def solve(group: Group, correlation: Correlation, rescale: Rescale) -> tuple[Tensor, Tensor]:
    """The element that brings a source closest to an anchor.

    Args:
        group: what may act; of an invertible space, rotations and scales of all coordinates together are considered.
        correlation: of one space, any number of copies at once.
        rescale: ``off`` for length-preserving elements; ``sequential`` for the paper's Eq. 11 and 12, the best scale
            after the best rotation; ``joint`` for the global optimum over both.

    Returns:
        The elements, shape ``(..., *element)``, and their values, shape ``(...)``: the squared distance that an
        element leaves is a constant minus its value. Both float64.
    """
    if group.size > SMALL:
        return geometry(group).solve(correlation, rescale)
    with _one_thread():
        return geometry(group).solve(correlation, rescale)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Decompose on one core: threads gain nothing on small matrices, and wait for each other where cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
