"""The sink `events`: writes a Kubernetes Event for each pod that is affected by an XID error.

`sink` is the component. `affected_pods` selects errors of snapshots, `event_queue` decides when to
write an Event, and `event_writer` builds Events and sends them.
"""
