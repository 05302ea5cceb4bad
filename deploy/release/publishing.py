"""Steps that publish: checksums, provenance, the push to a registry, signatures and their check."""

import hashlib
import json
import re
import shlex
import tarfile
from pathlib import Path

from deploy.release.provenance import predicate
from deploy.release.settings import ReleaseError, Settings

_CHART_FOLDER = "charts"
"""helm adds the name of the chart: REGISTRY/charts/podgpu."""


def sums(settings: Settings) -> None:
    """Write SHA256SUMS of all artefacts, in the format of sha256sum."""
    lines = [f"{_sha256(file)}  {file.name}\n" for file in _files(settings)]
    (settings.dist / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def provenance(settings: Settings) -> None:
    """Write provenance.json: from which commit, by which builder the artefacts were made."""
    made = predicate(settings.env, revision=settings.revision, epoch=settings.epoch)
    text = json.dumps(made, indent=2) + "\n"
    (settings.dist / "provenance.json").write_text(text, encoding="utf-8")


def push(settings: Settings) -> None:
    """Push one image for all architectures, and the chart; write their digests to digests.json."""
    registry = settings.registry
    buildah = settings.program("buildah")
    options = settings.options("BUILDAH_PUSH_OPTIONS")
    local = f"localhost/podgpu:{settings.version}"
    _remove_list(settings, local)
    settings.run(*buildah, "manifest", "create", local)
    for archive in settings.image_archives():
        settings.run(*buildah, "manifest", "add", local, f"oci-archive:{archive}")
    digest_file = settings.dist / "image.digest"
    settings.run(
        *(*buildah, "manifest", "push", "--all", *options),
        *("--digestfile", str(digest_file)),
        *(local, f"docker://{registry}/podgpu:{settings.version}"),
    )
    digests = {f"{registry}/podgpu": digest_file.read_text(encoding="utf-8").strip()}
    digest_file.unlink()
    output = settings.run(
        *(*settings.program("helm"), "push", *settings.options("HELM_PUSH_OPTIONS")),
        *(settings.chart_archive, f"oci://{registry}/{_CHART_FOLDER}"),
    )
    found = re.search(r"^Digest: (sha256:[0-9a-f]{64})$", output, re.MULTILINE)
    if found is None:
        raise ReleaseError("helm reported no digest of the chart")
    digests[f"{registry}/{_CHART_FOLDER}/podgpu"] = found[1]
    (settings.dist / "digests.json").write_text(json.dumps(digests, indent=2) + "\n", "utf-8")


def sign(settings: Settings) -> None:
    """Sign what was pushed, and attach SBOM and provenance; attest wheel, sdist and chart.

    With `SIGNING_KEY`, cosign uses that private key. Otherwise it signs without a key, by the
    identity of the workflow, which needs Sigstore's public services.
    """
    options = _signing_options(settings)
    predicates = settings.dist / "provenance.json"
    for reference in _pushed(settings):
        _cosign(settings, "sign", *options, reference)
        _cosign(settings, "attest", *options, *_typed("slsaprovenance1", predicates), reference)
    for archive in settings.image_archives():
        reference = f"{settings.registry}/podgpu@{manifest_digest(archive)}"
        _cosign(
            settings,
            *("attest", *options, *_typed("spdxjson", archive.with_suffix(".spdx.json"))),
            reference,
        )
    for file in _packages(settings):
        bundle = file.with_name(f"{file.name}.sigstore.json")
        _cosign(
            settings,
            *("attest-blob", *options, *_typed("slsaprovenance1", predicates)),
            *("--bundle", bundle, file),
        )


def verify(settings: Settings) -> None:
    """Check all signatures and attestations, as users do, by `VERIFY_OPTIONS`.

    For example `--key cosign.pub`, or `--certificate-identity` and `--certificate-oidc-issuer`.
    """
    needed = "the options that name the signer, such as --key cosign.pub"
    options = shlex.split(settings.need("VERIFY_OPTIONS", needed))
    for reference in _pushed(settings):
        _cosign(settings, "verify", *options, reference)
        _cosign(settings, "verify-attestation", *options, "--type", "slsaprovenance1", reference)
    for archive in settings.image_archives():
        reference = f"{settings.registry}/podgpu@{manifest_digest(archive)}"
        _cosign(settings, "verify-attestation", *options, "--type", "spdxjson", reference)
    for file in _packages(settings):
        bundle = file.with_name(f"{file.name}.sigstore.json")
        _cosign(
            settings,
            *("verify-blob-attestation", *options, "--type", "slsaprovenance1"),
            *("--bundle", bundle, file),
        )


def manifest_digest(archive: Path) -> str:
    """Return the digest of the only image in an OCI archive."""
    with tarfile.open(archive) as tar:
        try:
            file = tar.extractfile("index.json")
        except KeyError:
            file = None
        if file is None:
            raise ReleaseError(f"{archive} is no OCI archive: run `make release-image` again")
        (manifest,) = json.loads(file.read())["manifests"]
    digest: str = manifest["digest"]
    return digest


def _signing_options(settings: Settings) -> list[str]:
    key = settings.get("SIGNING_KEY")
    return [*(["--key", key] if key else []), "--yes", *settings.options("COSIGN_OPTIONS")]


def _typed(kind: str, file: Path) -> list[str]:
    return ["--type", kind, "--predicate", str(file)]


def _cosign(settings: Settings, command: str, *words: str | Path) -> None:
    # Commands with a registry need the same options, for example for one without TLS.
    more = [] if "blob" in command else settings.options("COSIGN_REGISTRY_OPTIONS")
    settings.run(*settings.program("cosign"), command, *more, *words)


def _pushed(settings: Settings) -> list[str]:
    file = settings.dist / "digests.json"
    if not file.is_file():
        raise ReleaseError(f"{file} does not exist: run `make release-push` first")
    return [f"{name}@{digest}" for name, digest in json.loads(file.read_bytes()).items()]


def _packages(settings: Settings) -> list[Path]:
    """Return wheel, sdist and chart."""
    names = ("podgpu-*.whl", "podgpu-*.tar.gz", "podgpu-chart-*.tgz")
    return [file for name in names for file in sorted(settings.dist.glob(name))]


def _files(settings: Settings) -> list[Path]:
    own = [
        settings.image_archives(),
        [a.with_suffix(".spdx.json") for a in settings.image_archives()],
    ]
    return sorted([*_packages(settings), *(file for files in own for file in files)])


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _remove_list(settings: Settings, name: str) -> None:
    """Remove the list of images that an earlier push left."""
    buildah = settings.program("buildah")
    listed = settings.run(*buildah, "images", "--format", "{{.Name}}:{{.Tag}}")
    if name in listed.split():
        settings.run(*buildah, "manifest", "rm", name)
