"""What a reader sees of finished runs: figures, and one HTML page that needs nothing else."""
