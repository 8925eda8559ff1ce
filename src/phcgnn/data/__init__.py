"""Data sets as flat tensors, and the ways to them."""
