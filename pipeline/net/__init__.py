"""Clients of the network: HTTP, gRPC, proxies, certificates, protocol buffers."""
