"""Random small networks whose symmetry is known by how they were put together."""

from tests.symmetry.infer.networks.demand import Demand
from tests.symmetry.infer.networks.images import ImageNetwork, image_networks
from tests.symmetry.infer.networks.texts import TextNetwork, text_networks

__all__ = ["Demand", "ImageNetwork", "TextNetwork", "image_networks", "text_networks"]
