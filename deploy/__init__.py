"""The Helm chart and plain YAML that install podgpu on a cluster, and code that generates parts."""
