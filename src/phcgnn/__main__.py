"""``python -m phcgnn`` is ``phcgnn``."""

from phcgnn.cli.main import app

if __name__ == "__main__":
    app()
