"""Current status of the node, for users. `/`, `/status` and `podgpu top` show the same document.

`document_builder` creates the document from the daemon's state, and `status_document` defines its
format. `problem_list` lists what needs attention, `recent_past` remembers what earlier snapshots
showed, `html` renders the page, and `endpoints` serves document and page. `topology_endpoint`
serves `/topology`.
"""
