"""Configurations that lead to code, and code that leaves a trace when it runs."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from config.loader import parse
from config.schema import Config
from pipeline.component.registry import RegisteredKinds

V1 = "client.authentication.k8s.io/v1"


class Program:
    """A credential plugin that leaves a trace when it runs, and prints a token."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "get-token"
        self._trace = folder / "trace"
        token = {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "t"}}
        gcp = {"credential": {"access_token": "t", "token_expiry": "2999-01-01T00:00:00Z"}}
        self.path.write_text(
            f"#!/bin/sh\necho run >> {self._trace}\n"
            f"case $1 in gcp) echo '{json.dumps(gcp)}';; *) echo '{json.dumps(token)}';; esac\n"
        )
        self.path.chmod(0o700)

    @property
    def has_run(self) -> bool:
        return self._trace.exists()

    def exec(self, **more: object) -> dict[str, object]:
        return {"exec": {"command": str(self.path), "apiVersion": V1, **more}}

    def gcp(self) -> dict[str, object]:
        config = {"cmd-path": str(self.path), "cmd-args": "gcp"}
        return {"auth-provider": {"name": "gcp", "config": config}}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


LIBRARY = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void ran(void) { close(open(TRACE, O_CREAT | O_WRONLY, 0600)); }
"""


class Trap:
    """A library that leaves a trace when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "libdcgm.so.4"
        self._trace = folder / "loaded"
        source = folder / "trap.c"
        source.write_text(LIBRARY)
        subprocess.run(
            [
                "gcc",
                "-shared",
                "-fPIC",
                f'-DTRACE="{self._trace}"',
                "-o",
                str(self.path),
                str(source),
            ],
            check=True,
        )

    @property
    def was_loaded(self) -> bool:
        return self._trace.exists()


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


def text(sources: str = "", sinks: str = "", more: str = "") -> str:
    return (
        f"sources: {{r: {{kind: replay, path: 'builtin:demo'}}{sources}}}\n"
        f"sinks: {{l: {{kind: jsonl}}{sinks}}}\n{more}"
    )


def config(document: str) -> Config:
    return parse(document, RegisteredKinds(), env={}, origin="test")


USES: dict[str, Callable[[Path], str]] = {
    "sources.p.kubeconfig": lambda path: text(sources=f", p: {{kind: pods, kubeconfig: {path}}}"),
    "sinks.n.kubeconfig": lambda path: text(sinks=f", n: {{kind: node, kubeconfig: {path}}}"),
    "sinks.a.kubeconfig": lambda path: text(sinks=f", a: {{kind: pods, kubeconfig: {path}}}"),
    "sinks.e.kubeconfig": lambda path: text(sinks=f", e: {{kind: events, kubeconfig: {path}}}"),
    "counters.kubeconfig": lambda path: text(
        more=f"counters: {{configmap: 'ns:list', kubeconfig: {path}}}\n"
    ),
}
ENGINE = "sources.h.library"


def with_library(path: Path) -> str:
    return text(sources=f", h: {{kind: hostengine, address: '127.0.0.1:1', library: {path}}}")


def textfile(folder: Path) -> str:
    return f"sinks: {{t: {{kind: textfile, path: {folder}/podgpu.prom}}}}\n"
