"""Writes a Kubernetes Event on each pod that an XID error has struck.

`sink` is the component; `errors` reads what happened out of snapshots, `agenda` keeps what is to be
written and when, `wording` makes the objects, `writing` sends them.
"""
