"""Network clients: HTTP, gRPC, proxies, certificates, protocol buffers."""
