"""Drawings of the dashboards as SVG, from their JSON and the results of their queries.

They show what Grafana would show, for people and tests that have no Grafana: values, texts, colours
and marks, but not its exact layout.
"""
