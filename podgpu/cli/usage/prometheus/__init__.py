"""`podgpu usage --prometheus`: the usage that a server with Prometheus' HTTP API has.

`recorded_series` has the PromQL of the recording rules. `coverage` decides what each hour is read
from, `usage_queries` has the queries, `http_api` sends them, `reader` does so for a whole span, and
`usage_rows` turns the results into the rows of a report.
"""
