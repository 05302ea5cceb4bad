"""Build the programs of `make e2e` (`make peers`); otherwise the tests build them when needed.

A build within a test would count for the time that the test may take.
"""

from tests.e2e import debian, peers

if __name__ == "__main__":
    print(peers.build())
    print(peers.collector())
    print(peers.prometheus())
    print(peers.helm())
    print(peers.kubectl())
    print(peers.crane())
    print(peers.actionlint())
    print(peers.compose())
    print(peers.versitygw())
    print(debian.slurm())
