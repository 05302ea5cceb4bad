"""Tests of reports on several nodes."""
