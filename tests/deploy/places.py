"""Paths of the chart, the plain manifest and the documentation."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart"
PLAIN = ROOT / "deploy" / "podgpu.yaml"
DOCS = ROOT / "docs"
