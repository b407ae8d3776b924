"""`python -m bagwise`: the command line where the script is not on the path."""

from bagwise.cli import main

if __name__ == "__main__":
    main()
