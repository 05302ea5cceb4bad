"""The HTTP listeners: one per address, shared by every component that has something to show.

The only package that imports `aiohttp.web`. A listener outlives the components that mount paths on
it, and it defends the process: a scraper that reads or writes slowly costs itself, nobody else.
"""
