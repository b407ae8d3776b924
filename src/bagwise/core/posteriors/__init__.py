"""What a fit leaves behind, and all predictions from it."""
