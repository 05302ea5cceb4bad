"""Access rules of the HTTP server: TLS, client certificates and passwords.

They come from a web configuration file in the format of Prometheus exporters. Without such a file
this package is not imported.
"""

from pipeline.http.access.access_checker import AccessChecker, open_access
from pipeline.http.access.web_config_reader import Rules, check

__all__ = ["AccessChecker", "Rules", "check", "open_access"]
