"""Objective, metrics, schedule, the loop and its checkpoints."""
