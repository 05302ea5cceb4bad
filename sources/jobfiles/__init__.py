"""The source `jobfiles`: reads from files which jobs of a batch system use each GPU."""
