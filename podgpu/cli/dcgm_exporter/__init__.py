"""`podgpu dcgm-exporter`: the daemon behind dcgm-exporter's command line.

`option_table` has the options as data; `go_arguments` and `environment` read what was given as
dcgm-exporter reads it; `config_builder` makes of it the configuration that a file would hold.
"""
