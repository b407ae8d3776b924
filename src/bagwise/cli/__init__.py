"""The `bagwise` command: a thin skin over the library."""

from bagwise.cli.app import main

__all__ = ["main"]
