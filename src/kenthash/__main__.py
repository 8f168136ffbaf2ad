"""`python -m kenthash` and `torchrun -m kenthash`: the same as the `kenthash` command."""

from kenthash.cli import main

if __name__ == "__main__":
    main()
