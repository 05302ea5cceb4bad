"""`podgpu dcgm-exporter`: the daemon behind dcgm-exporter's command line.

`table` has the options as data; `arguments` and `environment` read what was given as dcgm-exporter
reads it; `building` makes of it the configuration that a file would hold.
"""
