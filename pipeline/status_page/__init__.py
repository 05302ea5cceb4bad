"""Current status of the node, for people. `/`, `/status` and `podgpu top` show one document.

`document_builder` creates the document from the daemon's state, and `status_document` defines its
format. `display_text` lists the problems, `html` renders the page, `endpoints` serves both.
"""
