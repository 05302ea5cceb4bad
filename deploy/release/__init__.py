"""The artefacts of a release: wheel, sdist, image and chart, with SBOM, provenance and signatures.

`.github/workflows/release.yaml` runs `make release-STEP` for each step, and the tests do the same.
No step has a default registry, home page or address of the sources: they are settings.
"""
