"""python -m qkv: the same as the `qkv` command."""

import sys

from qkv.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
