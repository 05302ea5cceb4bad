"""Access to the objects of a rendered chart."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from config.loader import parse
from config.schema import Config
from pipeline.component.registry import RegisteredKinds

Object = dict[str, Any]
_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class HostFolder:
    """A folder or file of the host that a pod mounts."""

    path: str
    why: tuple[str, ...]
    """The comment lines directly above the volume."""


class Manifests:
    """The objects in the output of helm."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.objects: list[Object] = [each for each in yaml.safe_load_all(text) if each]

    def all(self, kind: str) -> list[Object]:
        return [each for each in self.objects if each["kind"] == kind]

    def kinds(self) -> set[str]:
        return {each["kind"] for each in self.objects}

    def one(self, kind: str, name: str | None = None) -> Object:
        (found,) = [
            each for each in self.all(kind) if name is None or each["metadata"]["name"] == name
        ]
        return found

    @property
    def pod(self) -> Object:
        """The DaemonSet's pod."""
        spec: Object = self.one("DaemonSet")["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Object:
        (found,) = [each for each in self.pod["containers"] if each["name"] == "podgpu"]
        made: Object = found
        return made

    @property
    def env(self) -> Mapping[str, str]:
        return {each["name"]: each.get("value", "") for each in self.container["env"]}

    @property
    def mounts(self) -> Mapping[str, tuple[str, bool]]:
        """Host folders and whether they are read-only, by the path in the container."""
        hosts = {
            each["name"]: each["hostPath"]["path"]
            for each in self.pod["volumes"]
            if "hostPath" in each
        }
        return {
            each["mountPath"]: (hosts[each["name"]], each.get("readOnly", False))
            for each in self.container["volumeMounts"]
            if each["name"] in hosts
        }

    @property
    def rules(self) -> list[Object]:
        """The sorted RBAC rules of the DaemonSet's service account in all namespaces."""
        name = self.one("DaemonSet")["metadata"]["name"]
        return ordered(
            rule
            for role in self.all("ClusterRole")
            if not role["metadata"]["name"].endswith(f"{name}-extender")
            for rule in role["rules"]
        )

    def config(self) -> Config:
        """Return podgpu's configuration, parsed as podgpu does.

        Raises:
            ConfigError: podgpu refuses it.
        """
        name = self.one("DaemonSet")["metadata"]["name"]
        text = self.one("ConfigMap", name)["data"]["config.yaml"]
        return parse(text, RegisteredKinds(), env={"NODE_NAME": "node1"}, origin="config.yaml")

    def host_folders(self) -> list[HostFolder]:
        """Return the host folders of the volumes with the comments above them."""
        lines = self.text.splitlines()
        found = []
        for at, line in enumerate(lines):
            if line.strip() != "hostPath:":
                continue
            path = yaml.safe_load(lines[at + 1])["path"]
            above = at - 2
            why: list[str] = []
            while lines[above].strip().startswith("#"):
                why.insert(0, lines[above].strip().removeprefix("#").strip())
                above -= 1
            found.append(HostFolder(path, tuple(why)))
        return found


def ordered(rules: Iterable[Object]) -> list[Object]:
    return sorted(({key: sorted(value) for key, value in rule.items()} for rule in rules), key=repr)


def documented(*pages: Path) -> list[Object]:
    """Return the sorted RBAC rules in YAML blocks of pages."""
    return ordered(
        rule
        for page in pages
        for block in _BLOCK.findall(page.read_text(encoding="utf-8"))
        if "verbs" in block
        for shown in yaml.safe_load_all(block)
        for rule in shown.get("rules", [])
    )
