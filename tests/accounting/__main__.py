"""Play many random stories: `python -m tests.accounting --stories 1000 --seed 0`."""

import argparse
import sys
import time

from tests.accounting.checking import check
from tests.accounting.stories import generate_story


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.accounting", description=__doc__)
    parser.add_argument("--stories", type=int, default=1000)
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the first story; others follow"
    )
    parser.add_argument("--keep-going", action="store_true")
    parser.add_argument("--show", action="store_true", help="print the actions of each story")
    options = parser.parse_args()
    start, different = time.monotonic(), 0
    for seed in range(options.seed, options.seed + options.stories):
        if options.show:
            for action in generate_story(seed).actions:
                print(action)
        differences = check(seed)
        if differences:
            different += 1
            print(f"seed {seed}:", *differences[:8], sep="\n  ", flush=True)
            if not options.keep_going:
                break
        done = seed - options.seed + 1
        if done % 1000 == 0:
            print(
                f"{done} stories, {different} differ, {time.monotonic() - start:.0f} s", flush=True
            )
    done = seed - options.seed + 1
    took = time.monotonic() - start
    print(f"{done} stories from seed {options.seed}, {different} differ, {took:.1f} s")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
