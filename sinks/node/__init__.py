"""The sink `node`: keeps topology and availability of GPUs in an annotation of the Node."""
