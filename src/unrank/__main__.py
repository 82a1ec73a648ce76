"""The command `unrank`, and `python -m unrank`. On a system that unrank cannot run on, one line says so."""

import sys

from unrank.errors import UnrankError


def main() -> None:
    """Run the command of this process, and exit with its status."""
    try:
        from unrank.cli.main import main as run
    except UnrankError as error:  # of disk.py, which needs the file locks of a POSIX system
        print(f"unrank: {error}", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
