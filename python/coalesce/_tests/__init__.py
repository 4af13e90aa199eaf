"""Tests of GPU memory: what the pytest plugin and unittest's mix-in share."""
