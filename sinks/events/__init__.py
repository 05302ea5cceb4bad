"""The sink `events`: writes a Kubernetes Event for each pod that is affected by an XID error.

`sink` is the component. `xid_errors` reads errors from snapshots, `work_queue` decides when to
write, `event_object` builds the objects, `event_writer` sends them.
"""
