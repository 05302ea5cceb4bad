"""Writes a Kubernetes Event on each pod that an XID error has struck.

`sink` is the component; `xid_errors` reads what happened out of snapshots, `work_queue` keeps what
is to be written and when, `event_object` makes the objects, `event_writer` sends them.
"""
