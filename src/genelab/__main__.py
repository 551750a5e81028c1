"""`python -m genelab` is the command `genelab`."""

from genelab.cli.main import main

if __name__ == "__main__":
    main()
