"""Turns error responses of an API server into errors that name the request and the fix."""

from collections.abc import Mapping
from http import HTTPStatus
from http.client import responses
from typing import Final

from pipeline.base.errors import ApiError
from pipeline.base.safe_text import line
from pipeline.kube.api_request import ApiRequest
from pipeline.kube.json_access import as_dict, as_int, as_text, parsed_object

_DENIED: Final = "is denied at admission"

_ONE_BY_ONE: Final = "configmaps"
"""Of this resource, podgpu reads single objects without changing them. Of other resources, it reads
a single object only if it also changes the object."""

_WRITTEN_ALONE: Final = "events"
"""podgpu creates and changes objects of this resource, and reads none."""


def response_error(
    server: str,
    request: ApiRequest,
    *,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    credentials: str,
) -> ApiError:
    """Return the error for a response whose status is not 2xx.

    Args:
        server: address of the server.
        request: the request.
        status: HTTP status of the response.
        headers: headers of the response; `Retry-After` is used.
        body: body of the response, or its beginning; a Status object if the API server wrote it.
        credentials: place of the credentials, as text for users.
    """
    document = parsed_object(body)
    error = status_error(document, status)
    retry_after = error.retry_after
    if (seconds := headers.get("Retry-After", "")).isdecimal() and len(seconds) < 10:
        retry_after = float(seconds)
    text = f"{request.method} {request.path} failed: {error}"
    if _is_denial_text(as_text(document.get("message"))):
        text = (
            f"{request.method} {request.path} {_DENIED} ({error}): podgpu has the permission, but "
            "a webhook or policy refuses this change"
        )
    elif status == HTTPStatus.UNAUTHORIZED:
        text = (
            f"credentials rejected ({error}); they come from {credentials}: "
            "check that they belong to this cluster and have not expired"
        )
    elif status == HTTPStatus.FORBIDDEN:
        text = _forbidden(request, error)
    return ApiError(
        f"{server}: {text}", status=status, reason=error.reason, retry_after=retry_after
    )


def status_error(status: Mapping[str, object], code: int = 0) -> ApiError:
    """Return the error for a Status object. Fields of the object may be missing.

    Args:
        status: the decoded object.
        code: HTTP status of the response that contained the object; 0 for an object in a stream.
    """
    code = code or as_int(status.get("code")) or 0
    reason = line(as_text(status.get("reason")), 60)
    seconds = as_int(as_dict(status.get("details")).get("retryAfterSeconds"))
    message = line(as_text(status.get("message")))
    summary = f"{code or ''} {reason or responses.get(code, '')}".strip()
    summary = summary or "an error without a code"
    return ApiError(
        f"{summary}: {message}" if message else summary,
        status=code,
        reason=reason,
        retry_after=float(seconds) if seconds and seconds > 0 else None,
    )


def is_admission_denial(error: ApiError) -> bool:
    """Return whether a webhook or an admission policy refused the request.

    A missing permission is another error, because authorization comes before admission.
    """
    text = str(error)
    return _DENIED in text or _is_denial_text(text)


def _is_denial_text(message: str) -> bool:
    # Webhooks choose any status, and policies any reason; only the server's text is constant.
    webhook = "admission webhook" in message and "denied the request" in message
    return webhook or "denied request" in message


def _forbidden(request: ApiRequest, error: ApiError) -> str:
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
