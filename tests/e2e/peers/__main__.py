"""Build all programs (`make peers`); otherwise the tests build them when needed."""

from tests.e2e import peers

if __name__ == "__main__":
    print(peers.build())
    print(peers.collector())
    print(peers.prometheus())
    print(peers.helm())
