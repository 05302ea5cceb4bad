"""Current status of the node, for users. `/`, `/status` and `podgpu top` show the same document.

`document_builder` creates the document from the daemon's state, and `status_document` defines its
format. `display_text` lists the problems, `html` renders the page, and `endpoints` serves document
and page. `topology_endpoint` serves `/topology`.
"""
