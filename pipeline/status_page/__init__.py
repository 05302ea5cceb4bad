"""How the node stands now, for people: one document, which `/`, `/status` and `podgpu top` show.

`document_builder` works the document out of what the daemon knows, `status_document` is its shape,
`problems` what of it needs somebody, `html` the page, `endpoints` serves both.
"""
