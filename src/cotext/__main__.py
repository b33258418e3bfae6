"""`python -m cotext`: the command line, for launchers that start modules."""

from cotext.cli.main import main

if __name__ == "__main__":
    main()
