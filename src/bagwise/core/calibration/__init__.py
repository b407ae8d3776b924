"""Probabilities made honest by bags that were left out of a fit."""
