"""`python -m semel`: the command line."""

from semel.faces.cli.main import main

if __name__ == "__main__":
    main()
