"""Bags of instances: the container that every model takes, and what is made of it."""

from bagwise.bags.container import Bags, as_bags, is_bagged

__all__ = ["Bags", "as_bags", "is_bagged"]
