"""`podgpu dcgm-exporter`: run the daemon with dcgm-exporter's command-line options.

`option_table` defines the options. `go_arguments` parses arguments and environment variables as
dcgm-exporter does. `config_file` reads dcgm-exporter's YAML file. `config_builder` converts the
settings into a podgpu configuration.
"""
