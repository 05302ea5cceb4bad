"""Reads the ResourceClaims that pods use, to recognise admin access to devices.

ResourceClaims are read one by one, by name: a list or a watch cannot be limited to a node, so each
node would read the ResourceClaims of the whole cluster. The fields that are used do not change
while a pod uses a ResourceClaim, so each is read once for each pod.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

import orjson

from pipeline.base.backoff import Backoff
from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi, SourceContext
from pipeline.kube.json_access import as_dict, as_dicts, as_text
from pipeline.model import NS, Pod, RawDeviceId, ResourceClaim
from sources.pods.resource_slices import FIRST_RETRY, MAX_RETRY, NOT_FOUND, VERSIONS
from sources.pods.timestamps import Timestamps

_REQUEST_TIMEOUT: Final = 5.0
"""Time limit in seconds for reading the ResourceClaims of pods; the pods are emitted after that."""
_TEMPLATE_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a ResourceClaim that was created for one pod, from a template."""


def claims_of(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[ResourceClaim, ...]:
    """Return the ResourceClaims that a pod uses. Only their names are set."""
    references = (
        *as_dicts(spec.get("resourceClaims")),
        *as_dicts(status.get("resourceClaimStatuses")),
        as_dict(status.get("extendedResourceClaimStatus")),
    )
    names = {as_text(each.get("resourceClaimName")) for each in references}
    return tuple(ResourceClaim(name) for name in sorted(names - {""}))


def map_claim(raw: Mapping[str, Any], timestamps: Timestamps) -> ResourceClaim | None:
    """Return the used parts of a ResourceClaim of any API version; None without name and UID."""
    metadata, status = as_dict(raw.get("metadata")), as_dict(raw.get("status"))
    name, uid = as_text(metadata.get("name")), as_text(metadata.get("uid"))
    if not (name and uid):
        return None
    allocation = as_dict(status.get("allocation"))
    results = as_dicts(as_dict(allocation.get("devices")).get("results"))
    return ResourceClaim(
        name,
        uid,
        bool(as_text(as_dict(metadata.get("annotations")).get(_TEMPLATE_ANNOTATION))),
        timestamps.parse(metadata.get("creationTimestamp")),
        timestamps.parse(allocation.get("allocationTimestamp")),
        tuple(sorted(_id(each) for each in results if each.get("adminAccess") is True)),
    )


def _id(result: Mapping[str, Any]) -> RawDeviceId:
    parts = (as_text(result.get(key)) for key in ("driver", "pool", "device"))
    return RawDeviceId("dra", "/".join(parts))


class ClaimReader:
    """Adds the details of the ResourceClaims to pods.

    If a request fails, the pods are emitted without these details. An error is logged if the next
    attempt fails too, and again only if its kind changes.

    Args:
        ctx: the context of the source.
        api: session with the API server; None if ResourceClaims are not read.
        timestamps: converts the timestamps of ResourceClaims.
    """

    def __init__(self, ctx: SourceContext, api: KubeApi | None, timestamps: Timestamps) -> None:
        self._ctx = ctx
        self._api = api
        self._timestamps = timestamps
        self._read: dict[str, dict[str, ResourceClaim]] = {}
        self._versions = list(VERSIONS)
        self._backoff = Backoff(FIRST_RETRY, MAX_RETRY)
        self._pauses = Backoff(FIRST_RETRY, MAX_RETRY)
        self._failures = 0
        self._logged: tuple[int, str] | None = None
        self._retry_ns = 0
        self._unread = asyncio.Event()

    async def complete(self, pods: Iterable[Pod]) -> list[Pod]:
        """Return pods with the details of their ResourceClaims, as far as these can be read now.

        Args:
            pods: pods with the names of their ResourceClaims.
        """
        pods = list(pods)
        if self._api is None:
            return pods
        if self._ctx.clock.now().mono_ns >= self._retry_ns:
            try:
                async with asyncio.timeout(_REQUEST_TIMEOUT):
                    for pod in pods:
                        await self._fetch(self._api, pod)
            except ApiError as error:
                self._failed(error)
            except TimeoutError:
                message = f"ResourceClaims: no response within {_REQUEST_TIMEOUT:.0f} s"
                self._failed(ApiError(message, reason="no answer"))
            else:
                self._failures, self._logged = 0, None
                self._backoff = Backoff(FIRST_RETRY, MAX_RETRY)
        found = [self._filled(pod) for pod in pods]
        if any(self.has_unread(pod) for pod in found):
            self._unread.set()
        return found

    async def wait_unread(self) -> None:
        """Wait until some ResourceClaim could not be read, and then until a retry is due."""
        await self._unread.wait()
        self._unread.clear()
        left = (self._retry_ns - self._ctx.clock.now().mono_ns) / NS
        # A missing ResourceClaim is no failure, but it is requested again after the same delay.
        await self._ctx.clock.sleep(max(left, self._pauses.delay(0.0)))

    def forget(self, uids: Iterable[str]) -> None:
        """Forget the ResourceClaims of pods that are deleted, by the pods' UIDs."""
        for uid in uids:
            self._read.pop(uid, None)

    def has_unread(self, pod: Pod) -> bool:
        """Return whether a ResourceClaim of a pod that has not ended could not be read yet."""
        return not pod.ended and any(not each.uid for each in self._filled(pod).resource_claims)

    def _filled(self, pod: Pod) -> Pod:
        read = self._read.get(pod.info.uid)
        if not read:
            return pod
        claims = tuple(read.get(each.name, each) for each in pod.resource_claims)
        return pod if claims == pod.resource_claims else replace(pod, resource_claims=claims)

    async def _fetch(self, api: KubeApi, pod: Pod) -> None:
        for each in () if pod.ended else pod.resource_claims:
            read = self._read.setdefault(pod.info.uid, {})
            if (
                each.name not in read
                and (found := await self._get(api, pod, each.name)) is not None
            ):
                read[each.name] = found

    async def _get(self, api: KubeApi, pod: Pod, name: str) -> ResourceClaim | None:
        """Read one ResourceClaim; return None if it does not exist.

        Raises:
            ApiError: the request fails.
        """
        where = f"namespaces/{quote(pod.info.namespace, safe='')}/resourceclaims"
        for version in tuple(self._versions):
            path = f"/apis/resource.k8s.io/{version}/{where}/{quote(name, safe='')}"
            try:
                response = as_dict(orjson.loads(await api.get(path, {})))
            except ApiError as error:
                if error.status != NOT_FOUND:
                    raise
            except orjson.JSONDecodeError:
                raise ApiError(f"{path}: the response is not JSON", reason="no JSON") from None
            else:
                self._versions = [version]
                return map_claim(response, self._timestamps)
        # An upgrade may have removed the API version that existed before.
        self._versions = list(VERSIONS)
        return None

    def _failed(self, error: ApiError) -> None:
        self._failures += 1
        delay = self._backoff.delay(0.0, error.retry_after)
        self._retry_ns = self._ctx.clock.now().mono_ns + round(delay * NS)
        if self._failures > 1 and error.dedup_key != self._logged:
            self._logged = error.dedup_key
            self._ctx.log.info(
                "%s; until the ResourceClaims can be read, pods with admin access to a device are "
                "shown as its holders; podgpu retries at least every %.0f minutes; grant get on "
                "resourceclaims in resource.k8s.io, or set resource_claims: false",
                error,
                MAX_RETRY / 60,
            )
