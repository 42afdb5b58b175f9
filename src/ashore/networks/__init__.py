"""The agent's networks: plain functions over plain pytrees, one example at a time."""

from ashore.networks.architecture import SIZES, Architecture, Sizes, from_named_weights, init, named_weights
from ashore.networks.encoder import NaturalPosterior
from ashore.networks.layers import Params

__all__ = [
    "SIZES",
    "Architecture",
    "NaturalPosterior",
    "Params",
    "Sizes",
    "from_named_weights",
    "init",
    "named_weights",
]
