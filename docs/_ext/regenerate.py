"""Make the generated parts of the pages anew: python docs/_ext/regenerate.py [--check] [PAGE ...]

Without pages: all of docs/ that have such parts.  With --check nothing is written; the exit code is
1 and the differences are printed if a page is not what the code says.
"""

import argparse
import difflib
import sys
from pathlib import Path

EXTENSIONS = Path(__file__).parent
sys.path.insert(0, str(EXTENSIONS))

from tcdsl_site.generated import pages, regenerated  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    arguments = parser.parse_args()
    differing = 0
    for path in arguments.pages or pages(EXTENSIONS.parent):
        before = path.read_text(encoding="utf-8")
        after = regenerated(path.stem, before)
        if before == after:
            continue
        differing += 1
        if arguments.check:
            lines = before.splitlines(True), after.splitlines(True)
            sys.stdout.writelines(difflib.unified_diff(*lines, str(path), "regenerated", n=1))
        else:
            path.write_text(after, encoding="utf-8")
            print(f"{path}: changed")
    return 1 if arguments.check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
