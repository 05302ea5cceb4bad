"""Plays many stories: `python -m tests.accounting --stories 1000 --seed 0`."""

import argparse
import sys
import time

from tests.accounting.checking import check
from tests.accounting.stories import story


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.accounting", description=__doc__)
    parser.add_argument("--stories", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others follow")
    parser.add_argument("--keep-going", action="store_true")
    parser.add_argument("--show", action="store_true", help="write down what happens in them")
    given = parser.parse_args()
    began, wrong = time.monotonic(), 0
    for seed in range(given.seed, given.seed + given.stories):
        if given.show:
            for act in story(seed).acts:
                print(act)
        differs = check(seed)
        if differs:
            wrong += 1
            print(f"seed {seed}:", *differs[:8], sep="\n  ", flush=True)
            if not given.keep_going:
                break
        done = seed - given.seed + 1
        if done % 1000 == 0:
            print(f"{done} stories, {wrong} differ, {time.monotonic() - began:.0f} s", flush=True)
    done = seed - given.seed + 1
    took = time.monotonic() - began
    print(f"{done} stories from seed {given.seed}, {wrong} differ, {took:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
