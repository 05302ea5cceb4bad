"""Who may read what podgpu serves: TLS, client certificates and passwords, from a web config file.

The file's form is that of Prometheus' own exporters. Nothing here is imported without such a file.
"""

from pipeline.http.access.rules import OPEN_RULES, Access, open_access
from pipeline.http.access.web_config_reader import Rules, check

__all__ = ["OPEN_RULES", "Access", "Rules", "check", "open_access"]
