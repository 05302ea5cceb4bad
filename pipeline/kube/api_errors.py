"""From what an API server answers to an error that says what was asked and how to mend it."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import orjson

from pipeline.base.errors import ApiError
from pipeline.base.safe_text import line
from pipeline.kube.json_access import as_dict, as_int, as_text
from pipeline.kube.request import Request

_DENIED: Final = "is denied at admission"

_ONE_BY_ONE: Final = "configmaps"
"""Of these podgpu reads the one that it was told of; other objects by name it also changes."""

_WRITTEN_ALONE: Final = "events"
"""These podgpu makes and changes, and reads none."""


def response_error(
    server: str,
    request: Request,
    *,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    credentials: str,
) -> ApiError:
    """Return the error for an answer whose status is not 2xx.

    Args:
        server: its address.
        request: what was asked for.
        status: of the answer.
        headers: of the answer; `Retry-After` is looked at.
        body: of the answer, or its beginning; a Status object, if the API server wrote it.
        credentials: where they come from, for people.
    """
    try:
        answer = as_dict(orjson.loads(body))
    except orjson.JSONDecodeError:
        answer = {}
    error = status_error(answer, status)
    retry_after = error.retry_after
    if (seconds := headers.get("Retry-After", "")).isdecimal() and len(seconds) < 10:
        retry_after = float(seconds)
    asked = f"{request.method} {request.path}"
    if _is_denial_text(as_text(answer.get("message"))):
        return ApiError(
            f"{server}: {asked} {_DENIED} ({error}): the right is there, and a webhook or policy "
            "refuses this change",
            status=status,
            reason=error.reason,
            retry_after=retry_after,
        )
    told: dict[int, str] = {
        HTTPStatus.UNAUTHORIZED: _unauthorized(credentials, error),
        HTTPStatus.FORBIDDEN: _forbidden(request, error),
    }
    return ApiError(
        f"{server}: " + told.get(status, f"{asked} is answered {error}"),
        status=status,
        reason=error.reason,
        retry_after=retry_after,
    )


def status_error(status: Mapping[str, object], code: int = 0) -> ApiError:
    """Return the error that a Status object tells of, whatever it lacks.

    Args:
        status: the object, as parsed.
        code: the HTTP status it came with; 0 for an object that came in a stream.
    """
    code = code or as_int(status.get("code")) or 0
    reason = line(as_text(status.get("reason")), 60)
    seconds = as_int(as_dict(status.get("details")).get("retryAfterSeconds"))
    told = [word for word in (str(code) if code else "", reason or _phrase(code)) if word]
    message = line(as_text(status.get("message")))
    said = " ".join(told) or "an error without a code"
    return ApiError(
        f"{said}: {message}" if message else said,
        status=code,
        reason=reason,
        retry_after=float(seconds) if seconds and seconds > 0 else None,
    )


def is_admission_denial(error: ApiError) -> bool:
    """Whether a webhook or an admission policy refused a change: it means this one object.

    Who lacks the right to make it is refused before admission.
    """
    told = str(error)
    return _DENIED in told or _is_denial_text(told)


def _is_denial_text(message: str) -> bool:
    # Webhooks choose the status that goes with it, policies a reason; the text is the server's.
    webhook = "admission webhook" in message and "denied the request" in message
    return webhook or "denied request" in message


def _phrase(code: int) -> str:
    try:
        return HTTPStatus(code).phrase
    except ValueError:
        return ""


def _unauthorized(credentials: str, error: ApiError) -> str:
    return (
        f"the credentials are not accepted ({error}); they come from {credentials}: "
        "see that they are of this cluster and not expired"
    )


def _forbidden(request: Request, error: ApiError) -> str:
    target, verb = request.target, request.verb
    group, resource, name = target.group, target.resource, target.name
    rule = f'apiGroups ["{group}"], resources ["{resource}"]'
    if target.namespace and verb == "get" and resource == _ONE_BY_ONE:
        return (
            f"podgpu may not get {name} of {resource} in {target.namespace} ({error}); give its "
            f"service account a Role in {target.namespace} with {rule}, "
            f'resourceNames ["{name}"], verbs [get]'
        )
    if resource == _WRITTEN_ALONE:
        verbs = "create, patch"
    else:
        verbs = "get, patch" if name else "create" if verb == "create" else "list, watch"
    shown = f"{resource} of {group}" if group else resource
    return (
        f"podgpu may not {verb} {shown} ({error}); give its service account a ClusterRole with "
        f"{rule}, verbs [{verbs}]"
    )
