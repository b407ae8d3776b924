"""The mathematics: features, likelihoods, inference, posteriors, calibration, files."""
