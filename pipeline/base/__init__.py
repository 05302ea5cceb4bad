"""Basics for every other package: clock, errors, logs, own metrics, channels, safe text."""
