"""podgpu's HTTP server: one listener per address, shared by all components that serve pages.

Only this package imports `aiohttp.web`. A listener outlives the components that serve paths on it.
The server protects the process from its clients: a slow client delays only itself.
"""
