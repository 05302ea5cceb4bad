"""What an API server lets podgpu do: by the very requests where they only read, else by asking."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from pipeline.base.errors import ApiError, CodeRefusedError, TransientError
from pipeline.component.check import Check
from pipeline.component.code_permissions import FIX, GIVE_BOTH
from pipeline.component.contracts import KubeApi
from pipeline.component.findings import Finding
from pipeline.diagnostics.context import DoctorContext
from pipeline.kube.json_access import as_dict

REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
"""Every user who is known may ask for these: the ClusterRole `system:basic-user`."""

OTHERS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
"""About somebody else; administrators may ask for these."""

ACCOUNT: Final = "the pod's service account"
_ACCESS_FIX: Final = (
    "see that the API server can be reached from here and accepts the credentials; a service "
    "account that is known may ask for its rights (ClusterRole system:basic-user)"
)
_REACH_FIX: Final = (
    "see that the address is right, that the server runs, and that no NetworkPolicy or proxy is in "
    "between"
)
_RENEW_FIX: Final = (
    "renew the token or the kubeconfig (an expired token, or one of another cluster); a pod's own "
    "is renewed by the kubelet: restart the pod, and see the node's clock"
)
_SILENCE: Final = 5.0
_UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404


def fix_for(error: TransientError) -> str:
    """Return what to do about a request that came to nothing."""
    if isinstance(error, CodeRefusedError):
        return f"{FIX}; {GIVE_BOTH}"
    if not isinstance(error, ApiError):
        return (
            "run podgpu in a pod with a service account, or set kubeconfig to a file that is "
            "mounted"
        )
    mends = {0: _REACH_FIX, _UNAUTHORIZED: _RENEW_FIX, FORBIDDEN: _ACCESS_FIX}
    return mends.get(error.status, "see the API server's log for this request")


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource.

    Attributes:
        verb: `get`, `list`, `watch`, `patch`, ...
        resource: in the plural.
        group: of the API; empty for the core group.
        name: of one object; empty for all.
        namespace: empty for all, or for what is in none.
    """

    verb: str
    resource: str
    group: str = ""
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        one = f" {self.name}" if self.name else ""
        return f"{self.verb} {what}{one}" + (f" in {self.namespace}" if self.namespace else "")

    @property
    def fix(self) -> str:
        """The rule that gives it to podgpu."""
        return self.fix_for("podgpu's service account")

    def fix_for(self, whom: str) -> str:
        """Return the rule that gives it to somebody."""
        kind = f"Role in {self.namespace}" if self.namespace else "ClusterRole"
        return (
            f'give {whom} a {kind} with apiGroups ["{self.group}"], '
            f'resources ["{self.resource}"], verbs [{self.verb}], and its binding'
        )


@dataclass(frozen=True, slots=True)
class Account:
    """A service account that somebody else asks about."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"the service account {self.namespace}/{self.name}"

    @property
    def user(self) -> str:
        """What the API server calls it."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    @property
    def groups(self) -> list[str]:
        """The groups that every such account is in; rules may be given to them."""
        all_ = "system:serviceaccounts"
        return [all_, f"{all_}:{self.namespace}", "system:authenticated"]


async def try_list(api: KubeApi, path: str, query: Mapping[str, str]) -> ApiError | None:
    """List one object; return what stands in the way."""
    try:
        await api.get(path, {**query, "limit": "1"})
    except ApiError as error:
        return error
    return None


async def try_watch(api: KubeApi, path: str, query: Mapping[str, str]) -> ApiError | None:
    """Open a watch and end it; return what stands in the way."""
    asked = {**query, "watch": "true", "timeoutSeconds": "1"}
    try:
        async with api.watch(path, asked, silence=_SILENCE):
            return None
    except ApiError as error:
        return error


async def is_allowed(api: KubeApi, right: Right, account: Account | None = None) -> bool:
    """Ask whether something is allowed, by an access review: for what would change things.

    Args:
        api: who is asked.
        right: what would be done.
        account: by whom; None for whom the session is of.

    Raises:
        ApiError: the server doesn't answer that.
    """
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "name": right.name,
        "namespace": right.namespace,
    }
    kind = "SelfSubjectAccessReview" if account is None else "SubjectAccessReview"
    whose = {} if account is None else {"user": account.user, "groups": account.groups}
    asked = {key: text for key, text in attributes.items() if text}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": kind,
        "spec": {**whose, "resourceAttributes": asked},
    }
    try:
        answer = orjson.loads(await api.create(OTHERS if account else REVIEWS, review))
    except orjson.JSONDecodeError as error:
        raise ApiError(f"the answer to a {kind} is no JSON") from error
    return as_dict(as_dict(answer).get("status")).get("allowed") is True


async def check_rights(
    ctx: DoctorContext, kubeconfig: Path | None, check: Check, *rights: Right
) -> list[Finding]:
    """Return what `review_rights` does, or a failure if the server can't be asked."""
    place = str(kubeconfig or ACCOUNT)
    try:
        async with ctx.kube(kubeconfig) as api:
            return await review_rights(api, check, place, *rights)
    except TransientError as error:
        return [check.failure(place, str(error), fix_for(error))]


async def review_rights(api: KubeApi, check: Check, subject: str, *rights: Right) -> list[Finding]:
    """Return a failure for each right that is missing, or one finding that all are there.

    Raises:
        ApiError: the server doesn't answer that.
    """
    missing = [right for right in rights if not await is_allowed(api, right)]
    if missing:
        return [check.failure(subject, f"may not {each}", each.fix) for each in missing]
    return [check.ok(subject, ", ".join(map(str, rights)))]
