"""``python -m tcdsl``: the command line without its installed script."""

import sys

from tcdsl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
