"""podgpu's HTTP server: one listener per address, shared by all components that serve pages.

The only package that imports `aiohttp.web`. A listener outlives the components that mount paths on
it. It also protects the process: a slow client delays only itself.
"""
