"""`python -m mta_viz`: the command line."""

import sys

from mta_viz.cli import main

if __name__ == "__main__":
    sys.exit(main())
