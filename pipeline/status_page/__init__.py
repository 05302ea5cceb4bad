"""How the node stands now, for people: one document, which `/`, `/status` and `podgpu top` show.

`making` works the document out of what the daemon knows, `document` is its shape, `problems` what
of it needs somebody, `html` the page, `pages` serves both.
"""
