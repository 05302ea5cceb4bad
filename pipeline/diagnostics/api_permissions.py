"""Check which requests an API server allows podgpu to make.

`try_list` and `try_watch` make the request. `is_allowed` creates an access review instead.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import orjson

from pipeline.base.errors import ApiError, CodeRefusedError, TransientError
from pipeline.component.code_permissions import FIX, GIVE_BOTH
from pipeline.component.contracts import KubeApi
from pipeline.component.findings import Check, Finding
from pipeline.diagnostics.context import DoctorContext
from pipeline.kube.json_access import as_dict

REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
"""Path for reviews of the session's own permissions. Every authenticated user may create these
reviews: ClusterRole `system:basic-user`."""

OTHERS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
"""Path for reviews of another user's permissions. Administrators may create these reviews."""

ACCOUNT: Final = "the pod's service account"
_ACCESS_FIX: Final = (
    "check that podgpu can reach the API server and that the server accepts the credentials; an "
    "authenticated service account may query its own permissions (ClusterRole system:basic-user)"
)
_REACH_FIX: Final = (
    "check that the address is correct, that the server runs, and that no NetworkPolicy or proxy "
    "blocks the connection"
)
_RENEW_FIX: Final = (
    "renew the token or the kubeconfig (the token has expired or belongs to another cluster); the "
    "kubelet renews the token of a pod: restart the pod, and check the node's clock"
)
_WATCH_TIMEOUT: Final = 5.0
_UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404


def fix_for(error: TransientError) -> str:
    """Return how to fix a failed request to an API server."""
    if isinstance(error, CodeRefusedError):
        return f"{FIX}; {GIVE_BOTH}"
    if not isinstance(error, ApiError):
        return (
            "run podgpu in a pod with a service account, or set kubeconfig to a file that is "
            "mounted"
        )
    fixes = {0: _REACH_FIX, _UNAUTHORIZED: _RENEW_FIX, FORBIDDEN: _ACCESS_FIX}
    return fixes.get(error.status, "check the log of the API server for this request")


@dataclass(frozen=True, slots=True)
class Right:
    """A permission: one verb on one resource.

    Attributes:
        verb: `get`, `list`, `watch`, `patch`, ...
        resource: plural name.
        group: API group; empty for the core group.
        name: name of one object; empty for all objects.
        namespace: namespace of the objects; empty for all namespaces, and for resources that are
            not namespaced.
    """

    verb: str
    resource: str
    group: str = ""
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {resource}{name}" + (f" in {self.namespace}" if self.namespace else "")

    def fix(self, subject: str = "podgpu's service account") -> str:
        """Return a text for people: the RBAC rule that grants this permission to a subject."""
        kind = f"Role in {self.namespace}" if self.namespace else "ClusterRole"
        return (
            f'give {subject} a {kind} with apiGroups ["{self.group}"], '
            f'resources ["{self.resource}"], verbs [{self.verb}], and its binding'
        )


@dataclass(frozen=True, slots=True)
class Account:
    """A service account whose permissions another user queries."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"the service account {self.namespace}/{self.name}"

    @property
    def user(self) -> str:
        """User name of the service account at the API server."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    @property
    def groups(self) -> list[str]:
        """Groups of the service account at the API server. RBAC rules may be bound to a group."""
        accounts = "system:serviceaccounts"
        return [accounts, f"{accounts}:{self.namespace}", "system:authenticated"]


async def try_list(api: KubeApi, path: str, query: Mapping[str, str]) -> ApiError | None:
    """List at most one object; return the error of the request, or None if it succeeds."""
    try:
        await api.get(path, {**query, "limit": "1"})
    except ApiError as error:
        return error
    return None


async def try_watch(api: KubeApi, path: str, query: Mapping[str, str]) -> ApiError | None:
    """Open a watch and close it; return the error of the request, or None if it succeeds."""
    parameters = {**query, "watch": "true", "timeoutSeconds": "1"}
    try:
        async with api.watch(path, parameters, silence=_WATCH_TIMEOUT):
            return None
    except ApiError as error:
        return error


async def is_allowed(api: KubeApi, right: Right, account: Account | None = None) -> bool:
    """Return whether a request is allowed, according to an access review. It is not made.

    Args:
        api: the API server.
        right: the permission.
        account: the account that would make the request; None for the user of the session.

    Raises:
        ApiError: the access review fails.
    """
    kind = "SelfSubjectAccessReview" if account is None else "SubjectAccessReview"
    user = {} if account is None else {"user": account.user, "groups": account.groups}
    resource = {key: text for key, text in asdict(right).items() if text}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": kind,
        "spec": {**user, "resourceAttributes": resource},
    }
    try:
        response = orjson.loads(await api.create(OTHERS if account else REVIEWS, review))
    except orjson.JSONDecodeError as error:
        raise ApiError(f"the response to a {kind} is not JSON") from error
    return as_dict(as_dict(response).get("status")).get("allowed") is True


async def check_rights(
    ctx: DoctorContext, kubeconfig: Path | None, check: Check, *rights: Right
) -> list[Finding]:
    """Return `review_rights` in a new session; one failure if the session or a review fails."""
    place = str(kubeconfig or ACCOUNT)
    try:
        async with ctx.kube(kubeconfig) as api:
            return await review_rights(api, check, place, *rights)
    except TransientError as error:
        return [check.failure(place, str(error), fix_for(error))]


async def review_rights(api: KubeApi, check: Check, subject: str, *rights: Right) -> list[Finding]:
    """Return a failure for each missing permission, or one `ok` finding if none is missing.

    Raises:
        ApiError: an access review fails.
    """
    missing = [right for right in rights if not await is_allowed(api, right)]
    if missing:
        return [check.failure(subject, f"may not {each}", each.fix()) for each in missing]
    return [check.ok(subject, ", ".join(map(str, rights)))]
