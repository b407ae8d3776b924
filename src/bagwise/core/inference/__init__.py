"""Inference: one convergence loop, coordinate ascent, Laplace, hyperparameters."""
