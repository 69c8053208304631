"""Covariance and histograms."""
