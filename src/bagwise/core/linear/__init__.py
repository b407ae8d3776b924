"""The MI-RVM family [R08]: linear noisy-or models with a Laplace evidence and ARD priors."""
