"""`python -m cotext`: the command line, for launchers that start modules."""

from cotext.cli import main

if __name__ == "__main__":
    main()
