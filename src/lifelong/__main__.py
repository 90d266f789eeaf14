"""`python -m lifelong`, and `torchrun -m lifelong`: the command line."""

from lifelong.cli import command

if __name__ == "__main__":
    command()
