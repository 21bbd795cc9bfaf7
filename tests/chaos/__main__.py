"""`python -m tests.chaos --seed N --tasks M`."""

import argparse
import sys

from tests.chaos.run import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=sys.modules["tests.chaos"].__doc__)
    parser.add_argument("--seed", type=int, default=1, help="decides what is asked and what is broken when")
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--keep", action="store_true", help="leave logs and data where they are")
    given = parser.parse_args()
    sys.exit(main(given.seed, given.tasks, keep=given.keep))
