"""``python -m ppopt``: the command line."""

from ppopt.cli import main

if __name__ == "__main__":
    main()
