"""Build them: what `make peers` does, and what the tests do by themselves when it wasn't done."""

from tests.e2e import peers

if __name__ == "__main__":
    print(peers.build())
    print(peers.collector())
    print(peers.prometheus())
    print(peers.helm())
