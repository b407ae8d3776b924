"""What bag labels say about latent values: one file per rule."""
